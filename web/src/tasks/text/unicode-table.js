/** Unicode as the package `tokenizers` knows it, whatever version the browser has. See `unicode_table.py`. */

import { TABLE } from "./unicode-data.js";

/** @typedef {[number, number][]} Ranges The code points of a set, sorted, both ends included. */

export const LAST = 0x10ffff;
const SETS = /** @type {Record<string, number[]>} */ (TABLE.sets);
/** @type {Map<string, Ranges>} */
const known = new Map();

/**
 * @param {string} name A set, a category (`Lu`), or all categories of a letter (`L`).
 * @returns {Ranges | null} Null where there is no such set.
 */
export function ranges(name) {
  let found = known.get(name);
  if (found) return found;
  if (Object.hasOwn(SETS, name)) {
    found = [];
    let at = 0;
    for (let index = 0; index < SETS[name].length; index += 2) {
      const start = at + SETS[name][index];
      at = start + SETS[name][index + 1];
      found.push([start, at - 1]);
    }
  } else {
    const categories = Object.keys(SETS).filter((one) => one.length === 2 && one[0] === name);
    if (categories.length === 0) return null;
    found = union(...categories.map((one) => set(one)));
  }
  known.set(name, found);
  return found;
}

/** @param {string} name Of a set that exists. */
export function set(name) {
  return /** @type {Ranges} */ (ranges(name));
}

/** @param {...Ranges} many @returns {Ranges} */
export function union(...many) {
  /** @type {Ranges} */
  const found = [];
  for (const [first, last] of many.flat().sort((one, other) => one[0] - other[0] || one[1] - other[1])) {
    const before = found.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else found.push([first, last]);
  }
  return found;
}

/** @param {Ranges} of @returns {Ranges} */
export function complement(of) {
  /** @type {Ranges} */
  const found = [];
  let at = 0;
  for (const [first, last] of of) {
    if (first > at) found.push([at, first - 1]);
    at = last + 1;
  }
  if (at <= LAST) found.push([at, LAST]);
  return found;
}

/** @param {Ranges} of @returns {string} A class in square brackets for `RegExp` with the flag `u`. */
export function writeClass(of) {
  const code = (/** @type {number} */ one) => `\\u{${one.toString(16)}}`;
  return `[${of.map(([first, last]) => (first === last ? code(first) : `${code(first)}-${code(last)}`)).join("")}]`;
}

/** @param {string} name @param {string} [repeat] @returns {RegExp} Finds all members of a set. */
export function finder(name, repeat = "") {
  return new RegExp(writeClass(set(name)) + repeat, "gu");
}

/**
 * @param {string} name
 * @returns {(character: string) => boolean} Whether a character is in a set; what was asked once is remembered.
 */
export function members(name) {
  const edges = set(name).flatMap(([first, last]) => [first, last + 1]);
  /** @type {Map<string, boolean>} */
  const asked = new Map();
  return (character) => {
    let found = asked.get(character);
    if (found === undefined) {
      const code = character.codePointAt(0) ?? 0;
      let [low, high] = [0, edges.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (edges[middle] <= code) low = middle + 1;
        else high = middle;
      }
      found = low % 2 === 1;
      asked.set(character, found);
    }
    return found;
  };
}

/** @type {Map<string, string> | undefined} */
let lower;

/** @param {string} text @returns {string} Each character in lower case, without looking at the others. */
export function lowerCase(text) {
  if (isAscii(text)) return text.toLowerCase();
  if (!lower) {
    lower = new Map(Object.entries(TABLE.lower_odd).map(([code, written]) => [String.fromCodePoint(Number(code)), written]));
    let at = 0;
    for (let index = 0; index < TABLE.lower.length; index += 4) {
      const [gap, length, step, delta] = TABLE.lower.slice(index, index + 4);
      at += gap;
      for (let count = 0; count < length; count += 1) {
        lower.set(String.fromCodePoint(at + count * step), String.fromCodePoint(at + count * step + delta));
      }
    }
  }
  let found = "";
  for (const character of text) found += lower.get(character) ?? character;
  return found;
}

/** @param {string} text */
export function isAscii(text) {
  return /^[\0-\x7f]*$/.test(text);
}
