/** Open a folder of the Hugging Face Hub that nobody converted, as transformers.js lays it out: `config.json` and `onnx/model.onnx`. */

import { InferError } from "../../errors.js";
import { downloadBytes } from "../../fetch/download.js";
import { FILES, findHub } from "./huggingface.js";
import { readFields } from "./fields.js";

/** @typedef {Omit<import("../pipeline.js").Runnable, "read">} Session */
/** @typedef {import("./huggingface.js").Files} Files */
/** @typedef {{apiKey?: string, signal?: AbortSignal}} Asking */

/** The model files of a folder, the one that is taken first, as `edge_infer.bundle.model_files` has them. */
const MODELS = ["", "_quantized", "_int8", "_uint8", "_fp16", "_q4", "_q4f16", "_bnb4"].flatMap((ending) =>
  ["onnx/", ""].map((folder) => `${folder}model${ending}.onnx`),
);
const CONFIG = "config.json";
/** What stands beside models of sounds and images; all else is of texts. */
const RAW_FILES = ["preprocessor_config.json", "vocab.json", "tokenizer_config.json"];
/** What servers answer where there is no file; storage of objects says 403. */
const MISSING = [403, 404, 410];

/** @param {unknown} error @returns {boolean} Whether a file is not there, and its server is. */
export function isMissing(error) {
  return error instanceof InferError && error.code === "fetch_error" && MISSING.includes(/** @type {number} */ (error.details.status));
}

/**
 * @template {Session} S
 * @param {string} address The folder's.
 * @param {(address: string) => Promise<S>} load Loads a model file.
 * @param {string | undefined} task The task that is wanted.
 * @param {Asking} asking
 * @returns {Promise<HubModel<S> | null>} The model with the manifest that its folder lacks; null where it has no `config.json`.
 * @throws {InferError} What `load` throws; `bundle_error`, `input_error` and `unsupported`: what the files say cannot be used.
 */
export async function openHubFolder(address, load, task, asking) {
  const base = new URL(address);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  const config = await read(base, CONFIG, asking);
  if (!config) return null;
  const { session, file } = await loadFirst(base, load);
  try {
    const takesText = session.inputs.some(({ name }) => name === "input_ids");
    const [name = ""] = readFields(config, CONFIG).texts("architectures");
    const wanted = takesText ? FILES.filter((one) => one !== "vocab.json") : RAW_FILES.slice(0, name.endsWith("ForCTC") ? 3 : 1);
    const found = await Promise.all(wanted.map(async (one) => [one, await read(base, one, asking)]));
    const files = Object.fromEntries([[CONFIG, config], ...found.filter(([, bytes]) => bytes)]);
    const described = findHub(files, session, task);
    const named = decodeURIComponent(base.pathname).split("/").at(-2) || "model";
    const manifest = { name: named, variants: [{ id: session.report().variant, format: "onnx", precision: "", file }], task: described?.task, pipeline: described?.pipeline };
    return new HubModel(session, manifest, described?.labels ?? [], described?.files ?? {});
  } catch (error) {
    await session.dispose();
    throw error;
  }
}

/** @template {Session} S @param {URL} base @param {(address: string) => Promise<S>} load */
async function loadFirst(base, load) {
  for (const file of MODELS) {
    try {
      return { session: await load(new URL(file, base).href), file };
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }
  throw new InferError(`\`${base.href}\` has no onnx/model.onnx`, "unsupported", { hint: "optimum-cli export onnx --model FOLDER FOLDER" });
}

/** @param {URL} base @param {string} path @param {Asking} asking @returns {Promise<Uint8Array<ArrayBuffer> | undefined>} Undefined where there is none. */
async function read(base, path, { apiKey, signal }) {
  const headers = apiKey === undefined ? undefined : { Authorization: `Bearer ${apiKey}` };
  try {
    return await downloadBytes(new URL(path, base), { phase: "model", headers, signal });
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** A session with the manifest, labels and files that stand around its model. @template {Session} S */
export class HubModel {
  /** @param {S} session @param {Record<string, any>} manifest @param {string[]} labels @param {Files} files */
  constructor(session, manifest, labels, files) {
    this.session = session;
    this.labels = labels;
    this.inputs = session.inputs;
    this.outputs = session.outputs;
    /** @type {Files} */
    this.files = { ...files, "manifest.json": new TextEncoder().encode(JSON.stringify(manifest)) };
  }

  /** @param {Record<string, unknown>} inputs */
  run(inputs) {
    return this.session.run(inputs);
  }

  report() {
    return this.session.report();
  }

  dispose() {
    return this.session.dispose();
  }

  /** @param {string} path @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async read(path) {
    if (Object.hasOwn(this.files, path)) return this.files[path];
    throw new InferError(`a folder that nobody converted offers no \`${path}\` to its pipeline`, "manifest_error", {
      hint: "edge-infer convert FOLDER -o model.bundle",
      details: { field: path },
    });
  }
}
