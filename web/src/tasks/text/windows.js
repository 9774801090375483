/** Windows: a long second text of a pair cut into parts that overlap, each with the whole first text before it. */

import { EdgeInferError } from "../../errors.js";

/** @typedef {import("./encoding.js").Encoding} Encoding */

const MAX_WINDOWS = 10_000;

/** A pair of texts whose tokens are known already: the whole texts, and the tokens of one part of the second. */
export class Window {
  /** @param {string} text @param {string} pair @param {Encoding} encoding */
  constructor(text, pair, encoding) {
    this.text = text;
    this.pair = pair;
    this.encoding = encoding;
  }
}

/**
 * @param {number[]} typeIds
 * @param {number[]} special
 * @returns {number[]} The places of the second text's tokens; templates without type ids put special tokens between both.
 */
export function contextTokens(typeIds, special) {
  const all = special.map((_, i) => i);
  if (typeIds.some(Boolean)) return all.filter((i) => typeIds[i] === 1 && !special[i]);
  const inner = all.filter((i) => special[i] && i > 0 && i < special.length - 1);
  return all.filter((i) => i >= (inner[0] ?? 0) && !special[i]);
}

/**
 * Cut into encodings of at most so many tokens, which together hold all tokens of the second text: those that the
 * `tokenizers` package gives for `only_second` with this `stride`.
 *
 * @param {Encoding} encoding A pair, neither cut nor filled up.
 * @param {number} length The most tokens of a window.
 * @param {number} stride How many tokens of the second text a window has again.
 * @returns {Encoding[]}
 * @throws {EdgeInferError} `input_error`: the first text leaves no room, or there are more than 10,000 windows.
 */
export function windows(encoding, length, stride) {
  const count = encoding.ids.length;
  if (count <= length) return [encoding];
  const tokens = contextTokens(encoding.typeIds, encoding.specialTokensMask);
  if (tokens.length === 0) return [picked(encoding, [[0, length]])];
  const [start, end] = [tokens[0], /** @type {number} */ (tokens.at(-1)) + 1];
  const room = length - start - (count - end);
  const step = room - stride;
  if (room < 1 || step < 1) {
    throw new EdgeInferError(`the question and the stride of ${stride} leave no room in ${length} tokens`, "input_error", {
      hint: "ask a shorter question, or give a smaller `doc_stride`",
    });
  }
  if (Math.floor((end - start) / step) > MAX_WINDOWS) {
    throw new EdgeInferError(`the context needs more than ${MAX_WINDOWS} windows`, "input_error", { hint: "give a shorter context" });
  }
  const found = [];
  for (let at = start; at < Math.max(end - stride, start + 1); at += step) {
    found.push(picked(encoding, [[0, start], [at, Math.min(at + room, end)], [end, count]]));
  }
  return found;
}

/** @param {Encoding} encoding @param {[start: number, end: number][]} parts @returns {Encoding} Some of its tokens. */
function picked({ ids, typeIds, attentionMask, specialTokensMask, offsets }, parts) {
  /** @template T @param {T[]} values @returns {T[]} */
  const of = (values) => parts.flatMap(([start, end]) => values.slice(start, end));
  return {
    ids: of(ids),
    typeIds: of(typeIds),
    attentionMask: of(attentionMask),
    specialTokensMask: of(specialTokensMask),
    offsets: offsets && of(offsets),
  };
}
