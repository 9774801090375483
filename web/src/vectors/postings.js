/** Which words stand in which rows of a segment, and the BM25 scores of a query: the same bits as `edge_infer/vectors/postings.py`. */

import { EdgeInferError } from "../errors.js";
import { wordsOf } from "./words.js";

const [K1, B] = [1.2, 0.75];
/** The natural logarithm of 2, rounded to a double. */
const LN2 = 0.6931471805599453;

/**
 * @typedef {object} Postings
 * @property {Uint8Array} terms The different words in UTF-8, one after the other, sorted by their bytes.
 * @property {Uint32Array} termEnds Where each of them ends.
 * @property {Uint32Array} ends Where the rows of each word end in `rows`.
 * @property {Uint32Array} rows The rows of each word, rising.
 * @property {Uint16Array} counts How often the word stands in each of them.
 * @property {Uint32Array} lengths How many words each row has.
 */

/**
 * @param {(Postings | null)[]} segments
 * @param {string} text The query.
 * @returns {Map<number, number>[]} For each segment the scores of the rows that have a word of the query.
 */
export function scoreWords(segments, text) {
  const known = segments.filter((one) => one !== null);
  const rows = known.reduce((sum, { lengths }) => sum + lengths.length, 0);
  const words = known.reduce((sum, { lengths }) => lengths.reduce((some, one) => some + one, sum), 0);
  const mean = rows ? words / rows : 0;
  /** @type {Map<number, number>[]} */
  const scores = segments.map(() => new Map());
  const terms = [...new Set(wordsOf(text))].map((word) => new TextEncoder().encode(word)).sort(compareBytes);
  for (const term of terms) {
    const spans = segments.map((one) => one && span(one, term));
    const having = spans.reduce((sum, one) => sum + (one ? one[1] - one[0] : 0), 0);
    if (!having) continue;
    const idf = naturalLog(1 + (rows - having + 0.5) / (having + 0.5));
    segments.forEach((one, place) => {
      const [start, end] = spans[place] ?? [0, 0];
      for (let i = start; one && i < end; i++) {
        const [row, count] = [one.rows[i], one.counts[i]];
        if (row >= one.lengths.length || !mean) throw new EdgeInferError("The words of the index are damaged", "bundle_error", { hint: "build it again" });
        const part = (idf * (count * (K1 + 1))) / (count + K1 * (1 - B + (B * one.lengths[row]) / mean));
        scores[place].set(row, (scores[place].get(row) ?? 0) + part);
      }
    });
  }
  return scores;
}

/**
 * @param {Postings} postings
 * @param {Uint8Array} term
 * @returns {[number, number] | null} The part of `rows` that is the word's own.
 */
function span({ terms, termEnds, ends }, term) {
  let [low, high] = [0, termEnds.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const order = compareBytes(terms.subarray(middle ? termEnds[middle - 1] : 0, termEnds[middle]), term);
    if (order === 0) return [middle ? ends[middle - 1] : 0, ends[middle]];
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return null;
}

/** @param {Uint8Array} one @param {Uint8Array} other @returns {number} */
function compareBytes(one, other) {
  const length = Math.min(one.length, other.length);
  for (let i = 0; i < length; i++) if (one[i] !== other[i]) return one[i] - other[i];
  return one.length - other.length;
}

/** @param {number} value From 1 on. @returns {number} Its natural logarithm, by additions, products and quotients alone. */
export function naturalLog(value) {
  let power = 0;
  for (; value >= 2; power++) value /= 2;
  const z = (value - 1) / (value + 1);
  const square = z * z;
  let total = 0;
  for (let odd = 39; odd > 0; odd -= 2) total = total * square + 1 / odd;
  return power * LN2 + 2 * z * total;
}
