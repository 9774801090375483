/**
 * The vectors of a bundle's pipeline: made-up raw inputs, the tensors that the steps make of them, and the answers. `edge_infer.tasks.vectors`
 * describes the file and how the inputs are made, and writes it; whether the steps are those of the vectors, their tensors and answers say here.
 */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { bytesOver } from "../tensors.js";
import { difference, plain } from "./agreement.js";
import { isObject } from "./check-parameters.js";
import { flat } from "./values.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("./definition.js").Definition} Definition */
/** @typedef {{raw: Record<string, any>, arguments: Record<string, any>, runs: Record<string, any>[], answer: any, own?: Record<string, any>}} Case */
/**
 * @typedef {object} Proven What is proven: a pipeline.
 * @property {Definition} definition
 * @property {(value: any, args: Record<string, any>) => any[]} runs Gives the raw inputs that one of the task takes.
 * @property {import("./prepared-steps.js").PreparedSteps} steps
 * @property {(inputs: any[], args: Record<string, any>) => Promise<any[]>} call
 * @property {string} variant The variant that runs.
 * @property {readonly string[]} labels
 * @property {string} name The bundle's.
 */

const VERSION = 1;
/** More than the converter writes; a bundle of somebody else must not keep a page busy. */
const MAX_CASES = 32;
const MAX_SIDE = 512;
const MAX_SAMPLES = 2 ** 20;
const MAX_RATE = 768_000;
const CLOSE = 1e-5;
const HINT = "convert the bundle again";
const ALL_CLASSES = 2 ** 20;

/**
 * Compare a pipeline with the vectors of its bundle.
 *
 * @param {Proven} pipeline
 * @param {Uint8Array} file The file of vectors.
 * @throws {EdgeInferError} `execution_error`: it gives something else. `manifest_error`: the vectors cannot be read.
 */
export async function prove(pipeline, file) {
  const { labels, cases } = read(file);
  const found = [];
  if ((await sha256(new TextEncoder().encode(JSON.stringify(pipeline.labels)))) !== labels) found.push("the labels were changed after the vectors were made");
  for (const [i, one] of cases.entries()) {
    try {
      const differences = [...(await ofSteps(pipeline, one)), await ofAnswer(pipeline, one)];
      found.push(...differences.filter(Boolean).map((said) => `case ${i}: ${said}`));
    } catch (error) {
      if (!(error instanceof EdgeInferError) || error.code === "manifest_error") throw error;
      found.push(`case ${i}: ${error.message}`);
    }
  }
  if (!found.length) return;
  throw new EdgeInferError(`\`${pipeline.name}\` does not give the answers of its vectors: ${found[0]}`, "execution_error", {
    hint: "edge-infer verify BUNDLE, or convert it again",
    details: { differences: found },
  });
}

/** @param {Uint8Array} file @returns {{labels: string, cases: Case[]}} */
function read(file) {
  const wrong = (/** @type {string} */ said) => new EdgeInferError(`the pipeline's file does not hold vectors of version ${VERSION}: ${said}`, "manifest_error", { hint: HINT });
  /** @type {any} */
  let document;
  try {
    document = JSON.parse(new TextDecoder().decode(file));
  } catch (error) {
    throw wrong(String(error));
  }
  if (!isObject(document) || document.version !== VERSION) throw wrong("it has another one");
  const { labels, cases } = document;
  if (typeof labels !== "string" || !Array.isArray(cases) || cases.length > MAX_CASES) throw wrong("`labels` or `cases`");
  for (const one of cases) {
    const isWhole = isObject(one) && isObject(one.raw) && isObject(one.arguments) && "answer" in one && (one.own === undefined || isObject(one.own));
    if (!isWhole || !Array.isArray(one.runs) || !one.runs.every(isObject)) throw wrong("a case");
  }
  return { labels, cases };
}

/** @param {Proven} pipeline @param {Case} one @returns {Promise<string[]>} In what the tensors differ that the steps make. */
async function ofSteps(pipeline, { raw, arguments: args, runs: expected }) {
  const runs = pipeline.runs(made(raw), args);
  if (runs.length !== expected.length) return [`${runs.length} runs, expected ${expected.length}`];
  const found = [];
  for (const [i, value] of runs.entries()) {
    const { tensors, frames } = await pipeline.steps.before(value, args);
    const parts = { ...Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, [tensor]])), ...frames };
    for (const name of new Set([...Object.keys(parts), ...Object.keys(expected[i])])) {
      if (!(await isSame(parts[name], expected[i][name]))) found.push(`the tensor \`${name}\` differs`);
    }
  }
  return found;
}

/** @param {Tensor[] | undefined} parts @param {any} facts @returns {Promise<boolean>} */
async function isSame(parts, facts) {
  if (!parts || !isObject(facts)) return false;
  const [{ dtype, shape }] = parts;
  const dims = parts.length === 1 ? shape : [parts.length, ...shape];
  if (facts.dtype !== dtype || String(facts.shape) !== String(dims)) return false;
  if (!("values" in facts)) {
    const all = parts.map(({ data }) => bytesOver(/** @type {any} */ (data)));
    const bytes = new Uint8Array(all.reduce((sum, { length }) => sum + length, 0));
    all.reduce((at, one) => (bytes.set(one, at), at + one.length), 0);
    return (await sha256(bytes)) === facts.sha256;
  }
  const { every, values } = /** @type {Record<string, any>} */ (facts);
  if (!Array.isArray(values) || !Number.isInteger(every) || every < 1) return false;
  const mine = parts.flatMap((part) => Array.from(flat(part), Number)).filter((_, i) => i % every === 0);
  const least = dtype.startsWith("float") ? CLOSE : 1; // a whole number is a rounded one: it may be the next
  return mine.length === values.length && mine.every((value, i) => Math.abs(value - values[i]) <= Math.max(least, CLOSE * Math.abs(values[i])));
}

/** @param {Proven} pipeline @param {Case} one @returns {Promise<string>} In what the answer differs. */
async function ofAnswer({ definition, call, variant }, { raw, arguments: args, answer: right, own }) {
  // All classes, and not the best alone: those near to one another may change places.
  const asked = definition.outputs.some(({ name }) => name === "post.top_k") ? { ...args, top_k: ALL_CLASSES } : args;
  const [answer] = await call([made(raw)], asked);
  const thresholds = definition.outputs.filter(({ name }) => name === "post.boxes").map(({ parameters }) => parameters.threshold);
  return difference(own?.[variant] ?? right, plain(inCharacters(answer, raw.value)), args.threshold ?? Math.max(0, ...thresholds));
}

/** @param {any} answer @param {any} value @returns {any} An answer about a text, its places in characters, as Python counts them. */
function inCharacters(answer, value) {
  const text = typeof value === "string" ? value : value?.context ?? value?.text;
  if (typeof text !== "string" || answer === null || typeof answer !== "object" || answer.dtype) return answer;
  if (Array.isArray(answer)) return answer.map((one) => inCharacters(one, value));
  const { start, end } = answer;
  if (!Number.isInteger(start) || !Number.isInteger(end)) return answer;
  const characters = (/** @type {number} */ units) => [...text.slice(0, units)].length;
  return { ...answer, start: characters(start), end: characters(end) };
}

/** @param {Record<string, any>} raw @returns {any} The raw input of a case. */
export function made({ image, sound, ...more }) {
  if (isObject(image)) return madeImage(whole(image, "seed", MAX_SIDE), whole(image, "width", MAX_SIDE), whole(image, "height", MAX_SIDE));
  if (isObject(sound)) {
    const rate = whole(sound, "rate", MAX_RATE);
    return { array: madeSound(rate, whole(sound, "samples", MAX_SAMPLES)), sampling_rate: rate };
  }
  if ("value" in more) return more.value;
  throw new EdgeInferError("a case of the pipeline's vectors is neither an image, a sound nor a value", "manifest_error", { hint: HINT });
}

/** @param {any} facts @param {string} name @param {number} most @returns {number} */
function whole(facts, name, most) {
  const value = facts[name];
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new EdgeInferError(`the pipeline's vectors: \`${name}\` is ${JSON.stringify(value)}, expected 1 to ${most}`, "manifest_error", { hint: HINT, details: { field: name } });
}

/** @param {number} seed @param {number} width @param {number} height @returns {import("./image/image.js").Image} */
function madeImage(seed, width, height) {
  let state = seed;
  const byte = () => {
    state = (Math.imul(1664525, state) + 1013904223) >>> 0; // the generator of Numerical Recipes
    return state >>> 24;
  };
  const cells = Array.from({ length: 8 * 8 * 3 }, byte);
  const data = new Uint8Array(3 * width * height);
  for (let y = 0, at = 0; y < height; y++) {
    const row = Math.floor((y * 8) / height);
    for (let x = 0; x < width; x++) {
      const cell = 3 * (8 * row + Math.floor((x * 8) / width));
      for (let channel = 0; channel < 3; channel++) data[at++] = (3 * cells[cell + channel] + byte()) >> 2;
    }
  }
  return { data, width, height, channels: 3 };
}

/** @param {number} rate @param {number} count @returns {Int16Array} A triangle whose pitch rises. */
function madeSound(rate, count) {
  let [step, phase] = [Math.floor((100 * 2 ** 32) / rate), 0];
  const slope = Math.floor(Math.floor((1900 * 2 ** 32) / rate) / count);
  return Int16Array.from({ length: count }, () => {
    const t = phase >>> 15;
    phase = (phase + step) % 2 ** 32;
    step += slope;
    return ((t < 65536 ? t : 131071 - t) - 32768) >> 1;
  });
}
