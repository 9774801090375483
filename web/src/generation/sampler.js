/**
 * The choice of the next token: penalties, selection and draw, with the same bits as `edge_infer.generation.sampler`, whose
 * rules these are.
 *
 * Logits are float32, all arithmetic is float64, and sums run in order. Penalties are rounded to float32 each time. Tokens
 * are ordered by falling logit, then by id. The first `topK` are kept, weights below `minP` are left out, and so is what
 * follows the first whose running sum reaches `topP` of the sum. One uniform number chooses among the rest. Temperature 0
 * takes the first. A token that the grammar refuses gets the logit minus infinity, and another is drawn.
 */

import { EdgeInferError } from "../errors.js";
import { exp, log, sumOfExps } from "./exact-math.js";
import { RandomNumbers } from "./random-numbers.js";

/** @typedef {[token: number, logit: number]} Ranked */
/**
 * @typedef {object} Row The logits of one row, as a decoder gives them.
 * @property {() => Float32Array} logits Of all tokens; they may be written.
 * @property {(count: number) => Ranked[]} top Gives the best tokens, by falling logit and then by id; a NaN is the first.
 */
/**
 * @typedef {object} Grammar What the next token may be.
 * @property {(token: number) => boolean} accepts
 * @property {() => Iterable<number>} allowed Gives all tokens that may come next.
 * @property {(token: number) => boolean} advance Takes the token that came next, and tells whether nothing may follow it.
 */
/**
 * @typedef {object} Choice A token that was chosen.
 * @property {number} token
 * @property {number | null} logprob The logarithm of its probability by the model alone; null where it was not asked for.
 * @property {Ranked[]} top The best tokens with theirs.
 */
/** @typedef {Pick<import("./options.js").GenerationOptions, "temperature" | "topK" | "topP" | "minP" | "seed" | "repetitionPenalty"
 *   | "frequencyPenalty" | "presencePenalty" | "logitBias" | "logprobs">} Sampling */

/** How many of the best tokens are looked at first where `topK` does not say. */
const FIRST_SELECTION = 256;
/** After so many refusals, all tokens that the grammar allows are looked for at once. */
const MAX_REFUSALS = 64;

/** Chooses the tokens of one answer. */
export class Sampler {
  #options;
  #size;
  #random;
  /** @type {Set<number>} */
  #seen;
  /** How often the answer has each token. @type {Map<number, number>} */
  #times = new Map();

  /**
   * @param {Sampling} options Their seed must be set where the temperature is above 0.
   * @param {Iterable<number>} prompt Its tokens, for the repetition penalty.
   * @param {number} size Tokens of the model.
   * @throws {EdgeInferError} `input_error`: `logitBias` names a token that the model does not have.
   */
  constructor(options, prompt, size) {
    for (const token of options.logitBias.keys()) {
      if (token >= size) {
        throw new EdgeInferError(`\`logitBias\` names token ${token}, the model has ${size}`, "input_error", { details: { option: "logitBias" } });
      }
    }
    this.#options = options;
    this.#size = size;
    this.#random = new RandomNumbers(options.seed ?? 0);
    this.#seen = options.repetitionPenalty !== 1 ? new Set(prompt) : new Set();
  }

  /**
   * Choose the next token and remember it; the row's logits are changed.
   *
   * @param {Row} row
   * @param {Grammar | null} [grammar]
   * @returns {Choice}
   * @throws {EdgeInferError} `execution_error`: the model's logits are not numbers, or no token may come next.
   */
  choose(row, grammar = null) {
    const wanted = this.#options.logprobs;
    let [best, total] = [0, 0];
    /** @type {Ranked[]} */
    let top = [];
    let plain = new Float32Array();
    if (wanted !== null) {
      const first = usable(row.top(Math.max(wanted, 1)));
      best = first[0][1];
      total = log(sumOfExps(row.logits(), best));
      top = first.slice(0, wanted).map(([token, logit]) => [token, logit - best - total]);
      plain = row.logits().slice();
    }
    this.#penalize(row);
    let token = this.#draw(row);
    if (grammar) token = this.#drawAllowed(row, grammar, token);
    this.#times.set(token, (this.#times.get(token) ?? 0) + 1);
    return { token, logprob: wanted === null ? null : plain[token] - best - total, top };
  }

  /** @param {Row} row */
  #penalize(row) {
    const { repetitionPenalty, frequencyPenalty, presencePenalty, logitBias } = this.#options;
    const logits = row.logits();
    for (const [token, bias] of logitBias) logits[token] += bias;
    if (repetitionPenalty !== 1) {
      for (const token of new Set([...this.#seen, ...this.#times.keys()])) {
        logits[token] = logits[token] > 0 ? logits[token] / repetitionPenalty : logits[token] * repetitionPenalty;
      }
    }
    if (frequencyPenalty || presencePenalty) {
      for (const [token, times] of this.#times) logits[token] -= frequencyPenalty * times + presencePenalty;
    }
  }

  /**
   * Draw until the grammar accepts: that is a draw from the accepted tokens alone.
   *
   * @param {Row} row
   * @param {Grammar} grammar
   * @param {number} token
   */
  #drawAllowed(row, grammar, token) {
    for (let i = 0; i < MAX_REFUSALS; i++) {
      if (grammar.accepts(token)) return token;
      row.logits()[token] = -Infinity;
      token = this.#draw(row);
    }
    if (grammar.accepts(token)) return token;
    const logits = row.logits();
    const ranked = [...grammar.allowed()].filter((one) => one < logits.length).map((one) => [one, logits[one]]);
    logits.fill(-Infinity);
    for (const [one, logit] of ranked) logits[one] = logit;
    return this.#draw(row);
  }

  /** @param {Row} row @returns {number} */
  #draw(row) {
    const { temperature, topK } = this.#options;
    if (temperature === 0) return usable(row.top(1))[0][0];
    const uniform = this.#random.uniform();
    const kept = Math.min(topK || this.#size, this.#size);
    for (let count = Math.min(kept, topK || FIRST_SELECTION); ; count = Math.min(count * 4, kept)) {
      const best = usable(row.top(count));
      const found = decide(best, kept - best.length, uniform, this.#options);
      if (found !== null) return found;
    }
  }
}

/**
 * Draw from the best tokens. Each of the others weighs at most as much as the last of the best: so their sum has a bound,
 * and where the draw is the same with none of it and with all of it, it is the draw from all tokens.
 *
 * @param {Ranked[]} best In order.
 * @param {number} left How many tokens follow them.
 * @param {number} uniform The random number.
 * @param {Pick<Sampling, "temperature" | "minP" | "topP">} options
 * @returns {number | null} Null where the others could change what is drawn.
 */
export function decide(best, left, uniform, { temperature, minP, topP }) {
  const highest = best[0][1];
  if (best[best.length - 1][1] === -Infinity) [best, left] = [best.filter(([, logit]) => logit > -Infinity), 0];
  /** @type {number[]} */
  const sums = [];
  let [total, weight, kept] = [0, 0, 0];
  for (const [, logit] of best) {
    weight = exp((logit - highest) / temperature);
    total = total + weight;
    sums.push(total);
    if (weight >= minP) kept += 1;
  }
  const known = sums.length;
  const endOfKept = left && kept === known ? known : kept - 1;
  // A little above the bound, for the rounding of a sum of so many numbers.
  const most = left ? (total + left * weight) * (1 + 1e-9) : total;
  const [low, high] = [total, most].map((whole) => {
    const end = Math.min(topP < 1 ? placeOf(sums, (sum) => sum >= topP * whole) : known, endOfKept);
    const drawn = uniform * (end < known ? sums[end] : whole);
    return Math.min(placeOf(sums, (sum) => sum > drawn), end);
  });
  return low === high && high < known ? best[low][0] : null;
}

/**
 * @param {number[]} sums Rising.
 * @param {(sum: number) => boolean} isReached
 * @returns {number} The place of the first sum that is, by halves; their number where none is.
 */
function placeOf(sums, isReached) {
  let [low, high] = [0, sums.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isReached(sums[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * @param {Ranked[]} best
 * @returns {Ranked[]} The best tokens.
 * @throws {EdgeInferError} `execution_error`: the logits are not numbers, or all tokens are forbidden.
 */
function usable(best) {
  const [, logit] = best[0];
  if (Number.isFinite(logit)) return best;
  if (logit !== -Infinity) {
    throw new EdgeInferError(`the model's best logit is ${logit}, so that no token can be chosen`, "execution_error", {
      hint: "the weights are damaged or overflow: convert the model again",
    });
  }
  throw new EdgeInferError("no token may come next: all of them are forbidden", "execution_error", { hint: "check `logitBias` and `responseFormat`" });
}
