/** Answer requests to a model with an encoder and a decoder: in a worker of its own, or on the thread of who asks. */

import { EdgeInferError } from "../errors.js";
import { SequenceModel } from "./encoder-decoder.js";
import { giveWay } from "./give-way.js";
import { Recognizer } from "./speech.js";

/** @typedef {import("../tasks/audio/sound.js").Sound} Sound */
/** @typedef {{kind: "open-sequence", asked: import("./encoder-decoder.js").Asked}} OpenSequenceRequest Answered by its `SequenceFacts`. */
/** @typedef {{kind: "hear", sound: Sound, asking: import("./speech.js").Asking}} HearRequest Answered by segments with their texts. */
/** @typedef {{kind: "answer-text", text: string, most: number}} AnswerTextRequest Answered by tokens and their text. */
/** @typedef {OpenSequenceRequest | HearRequest | AnswerTextRequest} SequenceRequest */
/** @typedef {{task: string, architecture: string, variant: string, rate: number}} SequenceFacts `rate` is of the sounds that it hears; 0 where it reads. */

/** What one model is asked for, one after the other. */
export class SequenceRequests {
  /** @type {SequenceModel | undefined} */
  #model;
  /** @type {Recognizer | undefined} */
  #recognizer;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {SequenceRequest} request
   * @param {{signal?: AbortSignal, onProgress?: import("../fetch/download.js").OnProgress}} [listening]
   * @returns {Promise<any>}
   */
  request(request, listening = {}) {
    const answered = this.#last.then(() => this.#answer(request, listening));
    this.#last = answered.catch(() => {});
    return answered;
  }

  /** Give the model's memory back. */
  close() {
    this.#model?.close();
    this.#model = undefined;
  }

  /** @param {SequenceRequest} request @param {{signal?: AbortSignal, onProgress?: import("../fetch/download.js").OnProgress}} listening */
  async #answer(request, { signal, onProgress }) {
    signal?.throwIfAborted();
    if (request.kind === "open-sequence") {
      const model = await SequenceModel.open(request.asked, { onProgress, signal });
      this.#model = model;
      if (request.asked.selfTest) {
        const { proveSequence } = await import("./sequence-vectors.js");
        await proveSequence(model, model.proof, model.precision, giveWay);
      }
      const { architecture, speech } = model.definition;
      return { task: model.task, architecture, variant: model.variant, rate: speech.rate ?? 0 };
    }
    const model = this.#model;
    if (!model) throw new EdgeInferError("The pipeline is closed", "input_error", { hint: "open it again: pipeline(url)" });
    const pause = async () => {
      await giveWay();
      signal?.throwIfAborted();
    };
    if (request.kind === "hear") {
      this.#recognizer ??= new Recognizer(model);
      const recognizer = this.#recognizer;
      const segments = await recognizer.segments(request.sound, request.asking, pause);
      return segments.map((one) => ({ ...one, text: recognizer.text(one.tokens) }));
    }
    const ids = model.tokenize(request.text);
    const crossed = model.encode({ input_ids: { data: BigInt64Array.from(ids, BigInt), dtype: "int64", shape: [1, ids.length] } });
    try {
      const tokens = await model.tokens(crossed, [model.definition.start], request.most, pause);
      return { tokens, text: model.tokenizer.decode(tokens) };
    } finally {
      model.forget(crossed);
    }
  }
}
