/** The step `post.answer_span`: the part of a text that answers a question. */

import { InferError } from "../../errors.js";
import { flat } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * Reads two outputs [tokens]: how likely an answer starts, and ends, at each token. It gives `{score, start, end, answer}`, or
 * a list of them for a `top_k` above 1; `start` and `end` are places in the context. The score is the product of both
 * softmaxes over the context's tokens, as in transformers' `QuestionAnsweringPipeline`.
 *
 * @param {{start: string, end: string, top_k: number, max_answer_len: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare(parameters, place) {
  const [starts, ends] = [parameters.start, parameters.end].map((name) => place.output(name, "post.answer_span"));
  return (/** @type {Record<string, Tensor>} */ outputs, item) => {
    const { encoding, pair } = item;
    if (!encoding?.offsets) {
      throw new InferError("pipeline: `post.answer_span` needs the places of tokens", "manifest_error", {
        hint: 'give the step text.tokenize "offsets": true',
      });
    }
    const { offsets } = encoding;
    const hint = '{question: "...", context: "..."}';
    if (pair === null) throw new InferError("a question was given without its context", "input_error", { hint });
    const tokens = tokensOfContext(encoding.typeIds, encoding.specialTokensMask);
    const [start, end] = [starts, ends].map((name) => likely(flat(outputs[name]), tokens));
    const longest = item.argument("max_answer_len", parameters.max_answer_len);
    /** @type {{score: number, first: number, last: number}[]} */
    const spans = [];
    for (let i = 0; i < tokens.length; i++) {
      for (let j = i; j < Math.min(i + longest, tokens.length); j++) spans.push({ score: start[i] * end[j], first: tokens[i], last: tokens[j] });
    }
    const count = item.argument("top_k", parameters.top_k);
    const best = spans.sort((one, other) => other.score - one.score).slice(0, count);
    const answers = best.map(({ score, first, last }) => {
      const [begin, stop] = [offsets[first][0], offsets[last][1]];
      return { score, start: begin, end: stop, answer: pair.slice(begin, stop) };
    });
    if (answers.length === 0) throw new InferError("the context holds no text", "input_error", { hint });
    return count === 1 ? answers[0] : answers;
  };
}

/**
 * @param {number[]} typeIds
 * @param {number[]} special
 * @returns {number[]} The places of the second text's tokens; templates without type ids put special tokens between both.
 */
function tokensOfContext(typeIds, special) {
  const all = special.map((_, i) => i);
  if (typeIds.some(Boolean)) return all.filter((i) => typeIds[i] === 1 && !special[i]);
  const inner = all.filter((i) => special[i] && i > 0 && i < special.length - 1);
  return all.filter((i) => i >= (inner[0] ?? 0) && !special[i]);
}

/** @param {ArrayLike<number>} logits @param {number[]} tokens @returns {number[]} */
function likely(logits, tokens) {
  const highest = tokens.reduce((most, i) => Math.max(most, logits[i]), -Infinity);
  const powers = tokens.map((i) => Math.exp(logits[i] - highest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
