/** The bytes of each token: what streamed text and grammars are made of. The same as `edge_infer.generation.vocabulary`. */

import { BYTES, CHARACTERS } from "../tasks/text/byte-alphabet.js";

const encoder = new TextEncoder();

/** The tokens of a tokenizer as bytes. */
export class Vocabulary {
  #isByteLevel;
  /** A token of plain text to stand before another one, as decoders treat the first token in its own way. */
  #anchor;
  /** @type {Map<number, Uint8Array>} */
  #known = new Map();
  /** @type {{data: Uint8Array, token: number}[] | undefined} */
  #ordered;

  /**
   * @param {import("../tasks/text/tokenizer.js").Tokenizer} tokenizer
   * @param {number} size Tokens of the model, which may be more than the tokenizer has.
   */
  constructor(tokenizer, size) {
    this.tokenizer = tokenizer;
    this.size = size;
    this.#isByteLevel = this.#writesBytes();
    this.#anchor = this.#findAnchor();
  }

  /**
   * @param {number} token
   * @returns {Uint8Array} Its bytes; none for a special token and for an id that the tokenizer lacks.
   */
  bytesOf(token) {
    let found = this.#known.get(token);
    if (found === undefined) this.#known.set(token, (found = this.#bytesOf(token)));
    return found;
  }

  /** @returns {{data: Uint8Array, token: number}[]} All tokens of text, ordered by their bytes and then by id. */
  ordered() {
    if (!this.#ordered) {
      const all = Array.from({ length: this.size }, (_, token) => ({ data: this.bytesOf(token), token }));
      this.#ordered = all.filter(({ data }) => data.length > 0).sort((one, other) => compare(one.data, other.data) || one.token - other.token);
    }
    return this.#ordered;
  }

  /** @param {number} token @returns {boolean} Whether it is a mark such as `</s>`, which is not text. */
  isSpecial(token) {
    const { tokenizer } = this;
    return tokenizer.idToToken(token) !== null && !tokenizer.decode([token]) && tokenizer.decode([token], { skipSpecialTokens: false }) !== "";
  }

  /** @returns {boolean} Whether the tokenizer reads the characters of the byte alphabet as bytes. */
  #writesBytes() {
    for (const [byte, character] of CHARACTERS.entries()) {
      const number = this.tokenizer.tokenToId(character);
      if (number !== null && character !== String.fromCharCode(byte)) return this.tokenizer.decode([number]) === textOf(Uint8Array.of(byte));
    }
    return false;
  }

  /** @returns {[number, string] | null} */
  #findAnchor() {
    for (let number = 0; number < Math.min(this.size, 4096); number++) {
      const text = this.tokenizer.decode([number]);
      if (/^[0-9A-Za-z]+$/.test(text)) return [number, text];
    }
    return null;
  }

  /** @param {number} token @returns {Uint8Array} */
  #bytesOf(token) {
    const { tokenizer } = this;
    const written = tokenizer.idToToken(token);
    if (written === null || this.isSpecial(token)) return new Uint8Array();
    if (this.#isByteLevel) {
      const characters = Array.from(written);
      const data = Uint8Array.from(characters.flatMap((character) => BYTES.get(character) ?? []));
      // An added token is written as it is, and may hold characters of the alphabet.
      return data.length === characters.length && tokenizer.decode([token]) === textOf(data) ? data : encoder.encode(written);
    }
    if (/^<0x..>$/su.test(written) && tokenizer.decode([token]) !== written) return Uint8Array.of(parseInt(written.slice(3, 5), 16));
    if (this.#anchor) {
      const [anchor, text] = this.#anchor;
      const both = tokenizer.decode([anchor, token]);
      if (both.startsWith(text)) return encoder.encode(both.slice(text.length));
    }
    return encoder.encode(tokenizer.decode([token]));
  }
}

/** @param {Uint8Array} data @returns {string} */
function textOf(data) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(data);
}

/** @param {Uint8Array} one @param {Uint8Array} other @returns {number} Below 0 where the first one comes first. */
export function compare(one, other) {
  const length = Math.min(one.length, other.length);
  for (let i = 0; i < length; i++) if (one[i] !== other[i]) return one[i] - other[i];
  return one.length - other.length;
}
