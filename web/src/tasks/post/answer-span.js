/** The step `post.answer_span`: the part of a text that answers a question. */

import { EdgeInferError } from "../../errors.js";
import { contextTokens } from "../text/windows.js";
import { flat } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * Reads two outputs [tokens]: how likely an answer starts, and ends, at each token. It gives `{score, start, end, answer}`, or
 * a list of them for a `top_k` above 1; `start` and `end` are places in the context. The score is the product of both
 * softmaxes over the context's tokens and the first token (`[CLS]`), which a model chooses where there is no answer, as in
 * transformers' `QuestionAnsweringPipeline`.
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
      throw new EdgeInferError("pipeline: `post.answer_span` needs the places of tokens", "manifest_error", {
        hint: 'give the step text.tokenize "offsets": true',
      });
    }
    const { offsets } = encoding;
    const hint = '{question: "...", context: "..."}';
    if (pair === null) throw new EdgeInferError("a question was given without its context", "input_error", { hint });
    const tokens = contextTokens(encoding.typeIds, encoding.specialTokensMask);
    const [start, end] = [starts, ends].map((name) => likely(flat(outputs[name]), tokens, encoding.specialTokensMask));
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
    if (answers.length === 0) throw new EdgeInferError("the context holds no text", "input_error", { hint });
    return count === 1 ? answers[0] : answers;
  };
}

/**
 * @param {ArrayLike<number>} logits
 * @param {number[]} tokens
 * @param {number[]} special
 * @returns {number[]} The softmax over the context's tokens and the first token, without what it gives the first token.
 */
function likely(logits, tokens, special) {
  const counted = special[0] === 1 ? [0, ...tokens] : tokens;
  const highest = counted.reduce((most, i) => Math.max(most, logits[i]), -Infinity);
  const total = counted.reduce((sum, i) => sum + Math.exp(logits[i] - highest), 0);
  return tokens.map((i) => Math.exp(logits[i] - highest) / total);
}
