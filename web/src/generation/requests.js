/** Answer requests to a model that generates text: in a worker of its own, or on the thread of who asks. */

import { EdgeInferError } from "../errors.js";
import { giveWay } from "./give-way.js";
import { openTextModel } from "./open.js";

/** @typedef {import("./text-model.js").TextModel} TextModel */
/** @typedef {import("./text-model.js").Piece} Piece */
/**
 * @typedef {object} OpenGenerationRequest Open a model that generates text; answered by its facts.
 * @property {"open-generation"} kind
 * @property {import("./open.js").Asked} asked
 */
/** @typedef {{kind: "generate"} & import("./text-model.js").Prompting} GenerateRequest Answered piece by piece, and then by why it ended. */
/** @typedef {{kind: "tokenize", text: string}} TokenizeRequest */
/** @typedef {{kind: "detokenize", tokens: readonly number[]}} DetokenizeRequest */
/** @typedef {{kind: "render", messages: readonly import("./text-model.js").Message[],
 *   tools?: readonly Record<string, any>[] | null, values?: Record<string, any>}} RenderRequest */
/** @typedef {OpenGenerationRequest | GenerateRequest | TokenizeRequest | DetokenizeRequest | RenderRequest} GenerationRequest */
/**
 * @typedef {object} Listening
 * @property {AbortSignal} [signal] Gives up: a generation ends within one token.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {(piece: Piece) => void} [onPiece]
 */

/** What one model is asked for, one after the other. */
export class GenerationRequests {
  /** @type {TextModel | undefined} */
  #model;
  #last = Promise.resolve();
  #open;

  /** @param {typeof openTextModel} [open] What opens a model. */
  constructor(open = openTextModel) {
    this.#open = open;
  }

  /**
   * @param {GenerationRequest} request
   * @param {Listening} [listening]
   * @returns {Promise<any>}
   */
  request(request, listening = {}) {
    const answered = this.#last.then(() => this.#answer(request, listening));
    this.#last = answered.then(
      () => {},
      () => {},
    );
    return answered;
  }

  /** Give the model's memory back. */
  close() {
    this.#model?.close();
    this.#model = undefined;
  }

  /** @param {GenerationRequest} request @param {Listening} listening */
  async #answer(request, { signal, onProgress, onPiece }) {
    signal?.throwIfAborted();
    if (request.kind === "open-generation") {
      const { model, facts } = await this.#open(request.asked, { onProgress, signal });
      this.#model = model;
      return facts;
    }
    const model = this.#model;
    if (!model) throw new EdgeInferError("The generator is closed", "input_error", { hint: "open it again: generate(url)" });
    switch (request.kind) {
      case "generate": {
        const pieces = model.generate(request);
        for (;;) {
          const { done, value } = await pieces.next();
          if (done) return value;
          onPiece?.(value);
          await giveWay();
          signal?.throwIfAborted();
        }
      }
      case "tokenize":
        return model.tokenize(request.text);
      case "detokenize":
        return model.detokenize(request.tokens);
      case "render":
        return model.render(request.messages, request.tools, request.values);
    }
  }
}
