/** Tokens to text, piece by piece: a character that is not whole yet is held back. */

/**
 * Writes the text of tokens that arrive one by one. The pieces together are the text of all tokens' bytes; bytes that are
 * not UTF-8 become U+FFFD, as in Python.
 */
export class Detokenizer {
  #vocabulary;
  #isFirst;
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /**
   * @param {import("./vocabulary.js").Vocabulary} vocabulary The bytes of each token.
   * @param {boolean} [isAnswer] Whether the text stands alone, as an answer in a chat does, and does not go on from a prompt.
   *   Then the first token is written as the tokenizer writes a first token: some leave its space out.
   */
  constructor(vocabulary, isAnswer = false) {
    this.#vocabulary = vocabulary;
    this.#isFirst = isAnswer;
  }

  /** @param {number} token The next one. @returns {string} The text that is now certain; an empty one where there is none. */
  add(token) {
    let data = this.#vocabulary.bytesOf(token);
    if (this.#isFirst && data.length > 0) {
      this.#isFirst = false;
      if (data[0] === 32 && !this.#vocabulary.tokenizer.decode([token]).startsWith(" ")) data = data.subarray(1);
    }
    return this.#decoder.decode(data, { stream: true });
  }

  /** @returns {string} What was held back; a character that never became whole is U+FFFD. */
  flush() {
    return this.#decoder.decode();
  }
}
