/** Added tokens: texts such as `[MASK]` that are found before anything else is done to a text. As `added_tokens.py`. */

import { unsupported } from "./definition.js";
import { cut } from "./pre-tokenizers.js";
import { members } from "./unicode-table.js";

/** @typedef {import("./pre-tokenizers.js").Piece} Piece */
/**
 * @typedef {object} AddedToken
 * @property {number} number Its id.
 * @property {string} text
 * @property {boolean} isWord It is none inside a word.
 * @property {boolean} takesLeft The white space in front belongs to it.
 * @property {boolean} takesRight
 * @property {boolean} isNormalized It is looked for, normalized, in the normalized text.
 * @property {boolean} isSpecial `decode` leaves it out.
 */

const MAX_CHARACTERS = 4096;

/** @param {import("./definition.js").Part} file @param {Map<string, number>} vocabulary @returns {AddedToken[]} */
export function readAddedTokens(file, vocabulary) {
  const parts = (file.values.added_tokens ?? null) === null ? [] : file.parts("added_tokens");
  return parts.flatMap((part) => {
    const [text, number, isSpecial] = [part.text("content"), part.whole("id"), part.flag("special", false)];
    if (text.length > MAX_CHARACTERS) throw unsupported(`\`${part.where}.content\``, `a text of ${text.length} characters`);
    const found = {
      number: vocabulary.get(text) ?? number,
      text,
      isWord: part.flag("single_word", false),
      takesLeft: part.flag("lstrip", false),
      takesRight: part.flag("rstrip", false),
      isNormalized: part.flag("normalized", !isSpecial),
      isSpecial,
    };
    return text ? [found] : [];
  });
}

const isLetter = members("word");
const isWhite = members("space");

/** @param {string} text @param {number} at @returns {string} The character that ends there. */
function before(text, at) {
  const isPair = at > 1 && /[\udc00-\udfff]/.test(text[at - 1]);
  return isPair ? text.slice(at - 2, at) : text[at - 1];
}

/** Finds added tokens in a text: the leftmost, and of those the longest. */
export class Matcher {
  /** @type {Map<string, AddedToken>} */
  tokens = new Map();
  /** @type {Map<string, number[]>} The lengths of the tokens that begin with a unit, longest first. */
  #lengths = new Map();

  /** @param {AddedToken[]} tokens @param {((text: string) => string) | null} normalize What is done to their texts first. */
  constructor(tokens, normalize) {
    for (const one of tokens) {
      const text = normalize ? normalize(one.text) : one.text;
      if (text) this.tokens.set(text, one);
    }
    for (const text of this.tokens.keys()) {
      const lengths = new Set(this.#lengths.get(text[0])).add(text.length);
      this.#lengths.set(text[0], [...lengths].sort((one, other) => other - one));
    }
    const units = [...this.#lengths.keys()].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
    this.#begins = units.length ? new RegExp(`[${units.join("")}]`, "g") : null;
  }

  /** @type {RegExp | null} */
  #begins;

  /** @param {string} text @returns {Generator<[number, number, AddedToken]>} */
  *#find(text) {
    if (!this.#begins) return;
    let free = 0;
    for (const { index } of text.matchAll(this.#begins)) {
      if (index < free) continue;
      for (const length of this.#lengths.get(text[index]) ?? []) {
        const token = this.tokens.get(text.slice(index, index + length));
        if (token) {
          free = index + length;
          yield [index, free, token];
          break;
        }
      }
    }
  }

  /** @param {Piece} piece @returns {Generator<[number | null, Piece]>} Each part with its id, null between tokens. */
  *split(piece) {
    const { text } = piece;
    let at = 0;
    for (let [start, end, token] of this.#find(text)) {
      const next = end < text.length ? String.fromCodePoint(text.codePointAt(end) ?? 0) : "";
      if (token.isWord && ((start && isLetter(before(text, start))) || (next && isLetter(next)))) continue;
      while (token.takesLeft && start > at && isWhite(text[start - 1])) start -= 1;
      while (token.takesRight && end < text.length && isWhite(text[end])) end += 1;
      if (at < start) yield [null, cut(piece, at, start)];
      yield [token.number, { ...cut(piece, start, end), isFirst: false }];
      at = end;
    }
    if (at < text.length) yield [null, cut(piece, at, text.length)];
  }
}
