/** The words of a text, as `edge_infer/vectors/words.py` counts them. */

import { isAscii, lowerCase, ranges, union, writeClass } from "../tasks/text/unicode-table.js";

/** @type {import("../tasks/text/unicode-table.js").Ranges} Scripts without spaces: a word for each character. */
const ONE_BY_ONE = [[0x3041, 0x30ff], [0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xf900, 0xfaff], [0x20000, 0x323af]];
const MAX_LENGTH = 64;
/** @type {RegExp | undefined} */
let pattern;

/** @param {string} text @returns {string[]} Its words in their order. */
export function wordsOf(text) {
  if (isAscii(text)) return (text.toLowerCase().match(/[a-z0-9]+/g) ?? []).map((word) => word.slice(0, MAX_LENGTH));
  if (!pattern) {
    const single = writeClass(ONE_BY_ONE);
    const of = (/** @type {string} */ name) => ranges(name) ?? [];
    pattern = new RegExp(`${single}|(?:(?!${single})${writeClass(union(of("L"), of("M"), of("N")))})+`, "gu");
  }
  // Cut by characters, as Python does, and not by halves of them.
  return (lowerCase(text).match(pattern) ?? []).map((word) => (word.length > MAX_LENGTH ? [...word].slice(0, MAX_LENGTH).join("") : word));
}
