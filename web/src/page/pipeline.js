/** Load a model with all that stands before and after it, whatever kind of bundle or folder it lies in. */

import { EdgeInferError } from "../errors.js";
import { rootOf } from "../fetch/root.js";
import { STORE, addressOf } from "./address.js";
import { load } from "./load.js";
import { Session, withWorker } from "./session.js";

/** @typedef {import("./load.js").SessionOptions} SessionOptions */
/** @typedef {SessionOptions & {task?: string}} PipelineOptions What `load` takes, and the task that the bundle must have. */
/** @typedef {import("../tasks/pipeline.js").Answering & {session: Session}} Pipeline A function that answers, and the model in it. */

/**
 * Load a model with all that stands before and after it, as its manifest says in `task` and `pipeline`.
 *
 *     const classify = await pipeline("/models/mobilenet");
 *     const [best] = await classify("cat.jpg", { top_k: 1 });
 *     console.log(best.label, best.score);
 *
 * @param {URL | string} url What `load` takes, or a folder of the Hugging Face Hub with `config.json` and `onnx/model.onnx`; or the name
 *   of a task, and the address second, as in transformers.js.
 * @param {URL | string | PipelineOptions} [options] The options, or the address.
 * @param {PipelineOptions} [more] The options where the address is second.
 * @returns {Promise<Pipeline>} A function: give it one raw input or a list of them, and the arguments of the task. That of
 *   `text-generation` has a `generator` in place of a `session`; that of a model with an encoder and a decoder, such as Whisper, has
 *   neither, and tells by `report()` what runs.
 * @throws {EdgeInferError} `unsupported`: the bundle does not say what stands before and after the model. `manifest_error`: what
 *   it says is wrong, or does not fit the model. `input_error`: it is for another task. And what `load` throws.
 */
export async function pipeline(url, options = {}, more = {}) {
  const isTaskFirst = typeof options === "string" || options instanceof URL;
  const { task: given, ...loading } = isTaskFirst ? more : options;
  if (isTaskFirst && given !== undefined) {
    throw new EdgeInferError("The task is given twice", "input_error", { hint: 'pipeline("image-classification", "/models/mobilenet")' });
  }
  const task = isTaskFirst ? String(url) : given;
  const address = isTaskFirst ? /** @type {URL | string} */ (options) : url;
  if (task === "text-generation") return openTextPipeline(address, loading);
  if (task !== undefined && TASKS_OF_PAIRS.includes(task)) return openPairPipeline(address, task, loading);
  if (task === SPEECH_TASK && (await isPairBundle(address, loading))) return openPairPipeline(address, task, loading);
  const fetched = import("../tasks/pipeline.js");
  fetched.catch(() => {}); // told where it is awaited
  if (task !== undefined) (await fetched).checkTask(task);
  const session = await loadUnlessPair(address, loading, task);
  if (session === null) return openPairPipeline(address, task, loading);
  try {
    if (task === undefined && (await isPairSession(session))) {
      await session.dispose();
      return openPairPipeline(address, task, loading);
    }
    const answering = await (await fetched).pipelineOf(session, task);
    if (loading.selfTest) await answering.selfTest();
    return Object.assign(answering, { session: session instanceof Session ? session : session.session });
  } catch (error) {
    await session.dispose();
    throw error;
  }
}

/**
 * @param {URL | string} url
 * @param {Record<string, any>} options
 * @returns {Promise<any>}
 */
async function openTextPipeline(url, options) {
  const { textPipeline } = await import("./text-pipeline.js");
  return textPipeline(addressOf(url), { ...options, root: rootOf(options.root) });
}

/** The tasks of models with an encoder and a decoder alone; other models may hear speech too. */
const TASKS_OF_PAIRS = ["text2text-generation", "summarization", "translation"];
const SPEECH_TASK = "automatic-speech-recognition";

/**
 * @param {URL | string} url
 * @param {string | undefined} task
 * @param {Record<string, any>} options
 * @returns {Promise<any>}
 */
async function openPairPipeline(url, task, options) {
  const { sequencePipeline } = await import("./sequence-pipeline.js");
  return sequencePipeline(addressOf(url), task, { ...options, root: rootOf(options.root) });
}

/** @param {URL | string} url @param {Record<string, any>} options @returns {Promise<boolean>} Whether a bundle has an encoder and a decoder. */
async function isPairBundle(url, { signal, apiKey }) {
  const address = addressOf(url);
  if (address.startsWith(STORE)) return false;
  const [{ openBundle }, { isPair }] = await Promise.all([import("../bundle/bundle.js"), import("../generation/pair-kind.js")]);
  try {
    return isPair((await openBundle(address, { signal, apiKey })).manifest);
  } catch (error) {
    if (error instanceof EdgeInferError && error.code === "fetch_error") return false; // the load will say it, or it is a folder of the Hub
    throw error;
  }
}

/**
 * @param {URL | string} url
 * @param {Record<string, any>} options
 * @param {string | undefined} task The task that is wanted.
 * @returns {Promise<Session | import("../tasks/sources/folder.js").HubModel<Session> | null>} Null for a bundle with an encoder and a decoder, of which
 *   only the manifest was fetched.
 */
async function loadUnlessPair(url, options, task) {
  try {
    return await load(url, task === undefined ? { ...options, refusesPairs: true } : options);
  } catch (error) {
    if (error instanceof EdgeInferError && error.details?.isPair) return null;
    const found = await openUnconverted(url, options, task, error);
    if (!found) throw error;
    return found;
  }
}

/**
 * @param {URL | string} url
 * @param {Record<string, any>} options
 * @param {string | undefined} task
 * @param {unknown} error Why it is no bundle.
 */
async function openUnconverted(url, options, task, error) {
  if (!(error instanceof EdgeInferError && error.code === "fetch_error") || String(url).startsWith(STORE)) return null;
  const { isMissing, isUnreachable, openHubFolder } = await import("../tasks/sources/folder.js");
  if (!isMissing(error) && !isUnreachable(error)) return null;
  const { keep = true, apiKey, signal } = options;
  return withWorker((worker) => {
    const read = (/** @type {URL} */ place) => worker.request({ kind: "file", url: place.href, keep, apiKey }, { signal });
    return openHubFolder(addressOf(url), (file) => load(file, options), task, read);
  }, rootOf(options.root));
}

/** @param {{read: (path: string) => Promise<Uint8Array<ArrayBuffer>>}} session */
async function isPairSession(session) {
  const { isPair } = await import("../generation/pair-kind.js");
  return isPair(JSON.parse(new TextDecoder().decode(await session.read("manifest.json"))));
}
