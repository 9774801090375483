/** Pipelines of models with an encoder and a decoder: speech to text, and text to text, with the answers of transformers. */

import { EdgeInferError } from "../errors.js";
import { prepare as prepareDecoding } from "../tasks/audio/decode.js";
import { Item } from "../tasks/item.js";
import { WorkerClient } from "./client.js";
import { hasWorkers } from "./start-worker.js";

/** @typedef {import("../generation/sequence-requests.js").SequenceFacts} SequenceFacts */
/** @typedef {{request: (body: any, options?: any) => Promise<any>, close: () => void}} Client What answers: a worker, or this thread. */
/** @typedef {{task: string, labels: readonly string[], report: () => SequenceFacts & {thread: "worker" | "own"}, dispose: () => Promise<void>}} Parts */
/** @typedef {((inputs: any, args?: Record<string, any>) => Promise<any>) & Parts} SequencePipeline */

/** By task of texts, what transformers calls the answer. @type {Record<string, string>} */
const TEXTS = { "text2text-generation": "generated_text", summarization: "summary_text", translation: "translation_text" };
const TAKEN = ["apiKey", "keep", "onProgress", "root", "selfTest", "signal", "threads", "variant"];
const HEARING = ["language", "task", "return_timestamps", "sampling_rate", "signal"];
const READING = ["max_tokens", "signal"];
const MOST_TOKENS = 1_000_000;

/**
 * @param {string} url
 * @param {string | undefined} task The task that is wanted; what the bundle is for unless given.
 * @param {Record<string, any> & {root: string}} options `variant`, `threads`, `selfTest` and what `load` takes of fetching; `device` and
 *   `backend` may say what is so in any case.
 * @returns {Promise<SequencePipeline>} Give it a sound or a text, or a list of them, and the arguments of the task.
 * @throws {EdgeInferError} `input_error`: the bundle is for another task, or an option is not of these. `execution_error`: with
 *   `selfTest` an answer differs from the bundle's.
 */
export async function sequencePipeline(url, task, options) {
  for (const [name, value] of Object.entries(options)) {
    const isSo = value === undefined || (name === "device" && ["auto", "wasm"].includes(value)) || (name === "backend" && value === "ort");
    if (isSo) delete options[name];
    else if (!TAKEN.includes(name)) {
      throw new EdgeInferError(`a model with an encoder and a decoder is opened without \`${name}\``, "input_error", { hint: `it takes ${TAKEN.join(", ")}` });
    }
  }
  const { variant, threads, apiKey, keep = true, root, selfTest, onProgress, signal } = options;
  const isAlone = !hasWorkers();
  /** @type {Client} */
  const client = isAlone
    ? new (await import("../generation/sequence-requests.js")).SequenceRequests()
    : new WorkerClient("edge-infer generation", { script: "generation-worker.js", root });
  try {
    /** @type {SequenceFacts} */
    const facts = await client.request({ kind: "open-sequence", asked: { url, root, variant, threads, apiKey, keep, selfTest } }, { onProgress, signal });
    const isFit = task === undefined || task === facts.task || (task in TEXTS && facts.task in TEXTS);
    if (!isFit) throw new EdgeInferError(`the bundle is for ${facts.task}, not for ${task}`, "input_error", { hint: `pipeline("${facts.task}", url)` });
    return pipelineOf(client, { ...facts, thread: isAlone ? "own" : "worker" }, task ?? facts.task);
  } catch (error) {
    client.close();
    throw error;
  }
}

/**
 * @param {Client} client
 * @param {SequenceFacts & {thread: "worker" | "own"}} facts
 * @param {string} task
 * @returns {SequencePipeline}
 */
function pipelineOf(client, facts, task) {
  let isOpen = true;
  const answer = (/** @type {any} */ value, /** @type {Record<string, any>} */ args) => (facts.rate > 0 ? hear(client, facts.rate, value, args) : read(client, task, value, args));
  const call = async (/** @type {any} */ inputs, /** @type {Record<string, any>} */ args = {}) => {
    if (!isOpen) throw new EdgeInferError("The pipeline is closed", "input_error", { hint: "open it again: pipeline(url)" });
    const known = facts.rate > 0 ? HEARING : READING;
    const unknown = Object.keys(args).find((name) => !known.includes(name));
    if (unknown !== undefined) throw new EdgeInferError(`${task} has no argument \`${unknown}\``, "input_error", { hint: `it takes ${known.join(", ")}` });
    if (!Array.isArray(inputs) || typeof inputs[0] === "number") return answer(inputs, args);
    const found = [];
    for (const one of inputs) found.push(await answer(one, args));
    return found;
  };
  const dispose = async () => {
    if (isOpen) client.close();
    isOpen = false;
  };
  return Object.assign(call, { task, labels: [], report: () => facts, dispose, [Symbol.asyncDispose ?? "dispose"]: dispose });
}

/**
 * @param {Client} client
 * @param {number} rate Of samples that are given without one.
 * @param {any} value What `audio.decode` takes.
 * @param {Record<string, any>} args
 * @returns {Promise<{text: string, chunks?: {timestamp: [number, number | null], text: string}[]}>}
 */
async function hear(client, rate, value, { return_timestamps: hasTimes = false, language, task: work, signal, ...args }) {
  if (typeof hasTimes !== "boolean") throw new EdgeInferError(`\`return_timestamps\` is ${JSON.stringify(hasTimes)}, expected true or false`, "input_error");
  // Read on the page's thread: a worker decodes WAV files alone.
  const sound = await prepareDecoding({ rate, sampling_rate: null })(value, new Item(args));
  const segments = await client.request({ kind: "hear", sound, asking: { language, task: work, hasTimes } }, { signal });
  const text = segments.map((/** @type {{text: string}} */ one) => one.text).join("");
  if (!hasTimes) return { text };
  const rounded = (/** @type {number | null} */ time) => (time === null ? null : Number(time.toFixed(2)));
  return { text, chunks: segments.map((/** @type {any} */ one) => ({ timestamp: [rounded(one.start), rounded(one.end)], text: one.text })) };
}

/**
 * @param {Client} client
 * @param {string} task
 * @param {any} value
 * @param {Record<string, any>} args
 * @returns {Promise<Record<string, string>[]>}
 */
async function read(client, task, value, { max_tokens: most = 256, signal }) {
  if (typeof value !== "string") throw new EdgeInferError(`${task} takes texts, not ${typeof value}`, "input_error", { hint: '"translate: Hello"' });
  if (!(Number.isInteger(most) && most >= 1 && most <= MOST_TOKENS)) {
    throw new EdgeInferError(`\`max_tokens\` is ${JSON.stringify(most)}, expected 1 to ${MOST_TOKENS}`, "input_error");
  }
  const { text } = await client.request({ kind: "answer-text", text: value, most }, { signal });
  return [{ [TEXTS[task]]: text }];
}
