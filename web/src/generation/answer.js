/** The text of one answer as its tokens arrive: characters made whole, and stop strings found. */

import { Detokenizer } from "./detokenize.js";
import { Stops } from "./stops.js";

/** Writes an answer. */
export class Answer {
  #detokenizer;
  #stops;

  /**
   * @param {import("./vocabulary.js").Vocabulary} vocabulary The bytes of each token.
   * @param {readonly string[]} stops Strings that end the answer.
   * @param {boolean} isChat Whether the text stands alone, and does not go on from a prompt.
   * @throws {import("../errors.js").EdgeInferError} `input_error`: the stop strings are too long together.
   */
  constructor(vocabulary, stops, isChat) {
    this.#detokenizer = new Detokenizer(vocabulary, isChat);
    this.#stops = new Stops(stops);
  }

  /** @param {number} token @returns {{text: string, isStopped: boolean}} The text that is certain; after a stop string nothing more may be added. */
  add(token) {
    return this.#stops.add(this.#detokenizer.add(token));
  }

  /** @returns {{text: string, isStopped: boolean}} The rest of the text once no token follows. */
  end() {
    const found = this.#stops.add(this.#detokenizer.flush());
    return found.isStopped ? found : { text: found.text + this.#stops.flush(), isStopped: false };
  }
}
