/** The options of one generation, checked once: those of `edge_infer.generation.options`, in camelCase. */

import { EdgeInferError } from "../errors.js";
import { didYouMean, listed } from "../tasks/words.js";

/**
 * @typedef {object} GenerationOptions How tokens are chosen and when generation ends.
 * @property {number} maxTokens The most new tokens.
 * @property {number} temperature Divides the logits; 0 takes the most likely token.
 * @property {number} topK Keeps the best so many tokens; 0 keeps all.
 * @property {number} topP Keeps the smallest set of the best tokens that has this share of the probability; 1 keeps all.
 * @property {number} minP Keeps tokens at least this fraction as likely as the best; 0 keeps all.
 * @property {number | bigint | null} seed The same seed gives the same tokens; null draws one.
 * @property {string[]} stop Texts that end the text; they are not part of it.
 * @property {number} repetitionPenalty Above 1, tokens of the prompt and of the answer become less likely (Keskar et al. 2019).
 * @property {number} frequencyPenalty Taken from a token's logit for each time that the answer has it.
 * @property {number} presencePenalty Taken from a token's logit once the answer has it.
 * @property {ReadonlyMap<number, number>} logitBias Added to the logits, by token.
 * @property {number | null} logprobs How many alternatives of each token are told with their logarithms of probability; 0 tells
 *   the chosen token's alone, null nothing.
 * @property {Record<string, any> | null} responseFormat Null for any text, `{type: "json_object"}`, or
 *   `{type: "json_schema", schema: {...}}`.
 */
/**
 * @typedef {Partial<Omit<GenerationOptions, "stop" | "logitBias" | "logprobs">> & {stop?: string | readonly string[],
 *   logitBias?: ReadonlyMap<number, number> | Record<string, number>, logprobs?: number | boolean | null}} GivenOptions
 *   Those that a caller gives.
 */

/** Texts of `stop`, and characters of one. */
const [MAX_STOPS, MAX_STOP_LENGTH] = [1024, 1024];
const MAX_LOGPROBS = 20;
const MAX_BIASES = 65_536;
/** The least, the most, and what the neutral value does. @type {Record<string, [number, number, string]>} */
const NUMBERS = {
  temperature: [0, 100, "0 takes the most likely token"],
  topP: [0, 1, "1 keeps all tokens"],
  minP: [0, 1, "0 keeps all tokens"],
  repetitionPenalty: [1e-6, 1e3, "1 changes nothing"],
  frequencyPenalty: [-100, 100, "0 changes nothing"],
  presencePenalty: [-100, 100, "0 changes nothing"],
};
/** Those of llama.cpp. @type {GenerationOptions} */
const DEFAULTS = {
  maxTokens: 256,
  temperature: 0.8,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  seed: null,
  stop: [],
  repetitionPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  logitBias: new Map(),
  logprobs: null,
  responseFormat: null,
};
const NAMES = Object.keys(DEFAULTS);

/**
 * Make options from those that were given; what is left out, or null, is the bundle's default or that of this package.
 *
 * @param {Record<string, any>} given
 * @param {Record<string, any>} [defaults] The bundle's own, named as in its manifest; fields that are no options are ignored.
 * @returns {GenerationOptions} With a seed.
 * @throws {EdgeInferError} `input_error`: a name is unknown or a value is out of range.
 */
export function optionsOf(given, defaults = {}) {
  for (const name of Object.keys(given)) {
    if (NAMES.includes(name)) continue;
    const camel = name.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase());
    const hint = (NAMES.includes(camel) ? `did you mean \`${camel}\`?` : didYouMean(name, NAMES)) || `choose from ${listed(NAMES)}`;
    throw new EdgeInferError(`generation has no option \`${name}\``, "input_error", { hint, details: { option: name } });
  }
  /** @type {any} */
  const found = { ...DEFAULTS };
  for (const name of NAMES) {
    const own = defaults[name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)];
    found[name] = given[name] ?? own ?? found[name];
  }
  whole("maxTokens", found.maxTokens, 1, 2 ** 31 - 1);
  whole("topK", found.topK, 0, 2 ** 31 - 1);
  for (const [name, [low, high, hint]] of Object.entries(NUMBERS)) real(name, found[name], low, high, hint);
  found.stop = stopsOf(found.stop);
  found.logitBias = biasesOf(found.logitBias);
  if (typeof found.logprobs === "boolean") found.logprobs = found.logprobs ? 0 : null;
  if (found.logprobs !== null) whole("logprobs", found.logprobs, 0, MAX_LOGPROBS);
  const { responseFormat } = found;
  if (responseFormat !== null && (typeof responseFormat !== "object" || Array.isArray(responseFormat))) {
    throw wrong("responseFormat", `is ${shown(responseFormat)}, expected an object`, '{ responseFormat: { type: "json_object" } }');
  }
  found.seed = seedOf(found.seed);
  return found;
}

/** @param {unknown} seed @returns {number | bigint} */
function seedOf(seed) {
  if (seed === null) {
    const [high, low] = crypto.getRandomValues(new Uint32Array(2));
    return (high >>> 11) * 2 ** 32 + low;
  }
  if (typeof seed === "bigint") {
    if (seed >= -(2n ** 63n) && seed < 2n ** 64n) return seed;
    throw wrong("seed", `is ${seed}, expected 64 bits`);
  }
  if (Number.isSafeInteger(seed)) return /** @type {number} */ (seed);
  throw wrong("seed", `is ${shown(seed)}, expected a whole number`, "above 2 ** 53 it is a bigint: { seed: 9007199254740993n }");
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
function whole(name, value, low, high) {
  if (!Number.isInteger(value)) throw wrong(name, `is ${shown(value)}, expected a whole number`);
  if (Number(value) < low || Number(value) > high) throw wrong(name, `is ${value}, expected ${low} to ${high}`);
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high @param {string} hint */
function real(name, value, low, high, hint) {
  if (typeof value !== "number" || !Number.isFinite(value)) throw wrong(name, `is ${shown(value)}, expected a number`, hint);
  if (value < low || value > high) throw wrong(name, `is ${value}, expected ${low} to ${high}`, hint);
}

/** @param {unknown} value @returns {string[]} */
function stopsOf(value) {
  const stops = typeof value === "string" ? [value] : value;
  if (!Array.isArray(stops)) throw wrong("stop", `is ${shown(value)}, expected a text or a list of texts`);
  if (stops.length > MAX_STOPS) throw wrong("stop", `has ${stops.length} texts, at most ${MAX_STOPS} are allowed`);
  for (const one of stops) {
    if (typeof one !== "string" || one === "") throw wrong("stop", `has ${shown(one)}, expected texts that are not empty`);
    const length = Array.from(one).length;
    if (length > MAX_STOP_LENGTH) throw wrong("stop", `has a text of ${length} characters, at most ${MAX_STOP_LENGTH} are allowed`);
  }
  return [...new Set(stops)];
}

/** @param {any} value @returns {Map<number, number>} */
function biasesOf(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw wrong("logitBias", `is ${shown(value)}, expected token ids with numbers`);
  }
  const entries = /** @type {[any, any][]} */ (value instanceof Map ? [...value] : Object.entries(value));
  if (entries.length > MAX_BIASES) throw wrong("logitBias", `names more than ${MAX_BIASES} tokens`);
  const found = new Map();
  for (const [token, bias] of entries) {
    const number = typeof token === "string" && !/^\d+$/.test(token) ? NaN : Number(token);
    if (!Number.isSafeInteger(number) || number < 0) throw wrong("logitBias", `has the token ${shown(token)}, expected an id of 0 or more`);
    real("logitBias", bias, -1000, 1000, "-100 forbids a token in practice");
    found.set(number, bias);
  }
  return found;
}

/** @param {string} name @param {string} what @param {string} [hint] */
function wrong(name, what, hint) {
  return new EdgeInferError(`\`${name}\` ${what}`, "input_error", { hint, details: { option: name } });
}

/** @param {unknown} value */
function shown(value) {
  const text = typeof value === "bigint" ? `${value}n` : (JSON.stringify(value) ?? String(value));
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
