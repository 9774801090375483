/** Let a model with an encoder and a decoder give the answers that its bundle carries; see `edge_infer.generation.sequence_vectors`. */

import { EdgeInferError } from "../errors.js";
import { prepare as prepareDecoding } from "../tasks/audio/decode.js";
import { Item } from "../tasks/item.js";
import { made } from "../tasks/vectors.js";
import { Recognizer } from "./speech.js";

/** @typedef {import("./encoder-decoder.js").SequenceModel} SequenceModel */
/** @typedef {import("./encoder-decoder.js").Pause} Pause */
/** @typedef {{variant: string, prompt?: string, sound?: Record<string, any>, ids: number[], options: {max_tokens?: number}, tokens: number[], text: string, logits?: [number, number][]}} Vector */

const TOKENS = 12;
/** By precision the share of the spread that logits may be off by. @type {Record<string, number>} */
const SHARES = { fp32: 1e-3, fp16: 3e-2, int8: 0.1 };
const HINT = "convert the model again, or load it without `selfTest`";

/**
 * @param {SequenceModel} model
 * @param {Uint8Array | undefined} data The bundle's file of vectors.
 * @param {string} precision The variant's.
 * @param {Pause} pause
 * @throws {EdgeInferError} `execution_error`: an answer differs. `bundle_error`: there is none of this variant, or the file is damaged.
 */
export async function proveSequence(model, data, precision, pause) {
  const vectors = readVectors(data).filter(({ variant }) => variant === model.variant);
  if (vectors.length === 0) throw new EdgeInferError(`the bundle has no answers of \`${model.variant}\`, so that it cannot prove itself`, "bundle_error", { hint: HINT });
  for (const vector of vectors) {
    const found = await difference(model, vector, SHARES[precision] ?? SHARES.int8, pause);
    if (found) throw new EdgeInferError(`\`${model.variant}\` does not give the bundle's answer here: ${found}`, "execution_error", { hint: "edge-infer verify" });
  }
}

/** @param {Uint8Array | undefined} data @returns {Vector[]} */
function readVectors(data) {
  if (!data) return [];
  const isTokens = (/** @type {any} */ list) => Array.isArray(list) && list.every(Number.isInteger);
  try {
    const found = JSON.parse(new TextDecoder().decode(data));
    const isWrong = (/** @type {any} */ one) => typeof one.variant !== "string" || typeof one.text !== "string" || !isTokens(one.ids) || !isTokens(one.tokens);
    if (found.some(isWrong)) throw new TypeError("an entry lacks a field");
    return found;
  } catch (error) {
    throw new EdgeInferError(`the bundle's answers cannot be read: ${error}`, "bundle_error", { hint: HINT });
  }
}

/**
 * @param {SequenceModel} model
 * @param {Vector} vector
 * @param {number} share
 * @param {Pause} pause
 * @returns {Promise<string>} What differs, in a few words; an empty text where all is equal.
 */
async function difference(model, vector, share, pause) {
  const { ids, crossed, prompt, change, text } = await ask(model, vector);
  const { context } = model.definition;
  const room = context ? Math.min(TOKENS, context - prompt.length) : TOKENS;
  /** @type {Float32Array} */
  let logits;
  /** @type {number[]} */
  let tokens;
  try {
    if (String(ids) !== String(vector.ids)) return `the ${vector.sound ? "sound" : "prompt"} has other tokens`;
    logits = model.firstLogits(crossed, prompt);
    tokens = await model.tokens(crossed, prompt, Math.min(vector.options?.max_tokens ?? TOKENS, room), pause, change);
  } finally {
    model.forget(crossed);
  }
  const allowed = share * spread(logits);
  for (const [token, expected] of vector.logits ?? []) {
    if (!(Math.abs(logits[token] - expected) <= allowed)) {
      return `the first logit of token ${token} is ${logits[token]}, expected ${expected} +- ${allowed.toPrecision(2)}`;
    }
  }
  const place = vector.tokens.findIndex((expected, i) => i < tokens.length && tokens[i] !== expected);
  if (place >= 0) return `greedy token ${place} is ${tokens[place]}, expected ${vector.tokens[place]}`;
  if (tokens.length !== vector.tokens.length) return `there are ${tokens.length} greedy tokens, expected ${vector.tokens.length}`;
  return text(tokens) === vector.text ? "" : "the greedy text differs";
}

/** @param {SequenceModel} model @param {Vector} vector What the decoder is given, and how its tokens are chosen and read. */
async function ask(model, { prompt: asked = "", sound }) {
  if (sound) {
    const recognizer = new Recognizer(model);
    const decode = prepareDecoding({ rate: model.definition.speech.rate, sampling_rate: null });
    const { crossed, prompt } = await recognizer.firstWindow(await decode(made({ sound }), new Item({})));
    return { ids: prompt, crossed, prompt, change: recognizer.plain.bind(recognizer), text: recognizer.text.bind(recognizer) };
  }
  const ids = model.tokenize(asked);
  const crossed = model.encode({ input_ids: { data: BigInt64Array.from(ids, BigInt), dtype: "int64", shape: [1, ids.length] } });
  return { ids, crossed, prompt: [model.definition.start], change: undefined, text: (/** @type {number[]} */ tokens) => model.tokenizer.decode(tokens) };
}

/** @param {Float32Array} logits @returns {number} Their standard deviation. */
function spread(logits) {
  const mean = logits.reduce((sum, one) => sum + one, 0) / logits.length;
  return Math.sqrt(logits.reduce((sum, one) => sum + (one - mean) ** 2, 0) / logits.length);
}
