/** Open a folder of the Hugging Face Hub that nobody converted, as transformers.js lays it out: `config.json` and `onnx/model.onnx`. */

import { EdgeInferError } from "../../errors.js";
import { FILES, findHub } from "./huggingface.js";
import { readFields } from "./fields.js";

/** @typedef {Omit<import("../pipeline.js").Runnable, "read">} Session */
/** @typedef {import("./huggingface.js").Files} Files */
/** @typedef {(place: URL) => Promise<{bytes: Uint8Array<ArrayBuffer>, isOffline: boolean}>} Read Gives a file of the folder; `isOffline` where the
 *   server cannot be reached and it was kept. */

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
  return error instanceof EdgeInferError && error.code === "fetch_error" && MISSING.includes(/** @type {number} */ (error.details.status));
}

/** @param {unknown} error @returns {boolean} Whether the server cannot be reached. */
export function isUnreachable(error) {
  return error instanceof EdgeInferError && error.code === "fetch_error" && error.details.status === undefined;
}

/**
 * @template {Session} S
 * @param {string} address The folder's.
 * @param {(address: string) => Promise<S>} load Loads a model file.
 * @param {string | undefined} task The task that is wanted.
 * @param {Read} read
 * @returns {Promise<HubModel<S> | null>} The model with the manifest that its folder lacks; null where it has no `config.json`, and where
 *   its server cannot be reached and nothing of it was kept.
 * @throws {EdgeInferError} What `load` throws; `bundle_error`, `input_error` and `unsupported`: what the files say cannot be used.
 */
export async function openHubFolder(address, load, task, read) {
  const base = new URL(address);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  let isOffline = false;
  // Without the server, what was not kept is what the folder lacks.
  const isAbsent = (/** @type {unknown} */ error) => isMissing(error) || (isOffline && isUnreachable(error));
  const optional = async (/** @type {string} */ path) => {
    try {
      return await read(new URL(path, base));
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  };
  const found = await optional(CONFIG).catch((error) => {
    if (!isUnreachable(error)) throw error;
  });
  if (!found) return null;
  const config = found.bytes;
  isOffline = found.isOffline;
  const { session, file } = await loadFirst(base, load, isAbsent);
  try {
    const takesText = session.inputs.some(({ name }) => name === "input_ids");
    const [name = ""] = readFields(config, CONFIG).texts("architectures");
    const wanted = takesText ? FILES.filter((one) => one !== "vocab.json") : RAW_FILES.slice(0, name.endsWith("ForCTC") ? 3 : 1);
    /** @type {Files} */
    const files = { [CONFIG]: config };
    for (const [i, one] of (await Promise.all(wanted.map(optional))).entries()) if (one) files[wanted[i]] = one.bytes;
    const described = findHub(files, session, task);
    const named = decodeURIComponent(base.pathname).split("/").at(-2) || "model";
    const manifest = { name: named, variants: [{ id: session.report().variant, format: "onnx", precision: "", file }], task: described?.task, pipeline: described?.pipeline };
    return new HubModel(session, manifest, described?.labels ?? [], described?.files ?? {});
  } catch (error) {
    await session.dispose();
    throw error;
  }
}

/** @template {Session} S @param {URL} base @param {(address: string) => Promise<S>} load @param {(error: unknown) => boolean} isAbsent */
async function loadFirst(base, load, isAbsent) {
  for (const file of MODELS) {
    try {
      return { session: await load(new URL(file, base).href), file };
    } catch (error) {
      if (!isAbsent(error)) throw error;
    }
  }
  throw new EdgeInferError(`\`${base.href}\` has no onnx/model.onnx`, "unsupported", { hint: "optimum-cli export onnx --model FOLDER FOLDER" });
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
    throw new EdgeInferError(`a folder that nobody converted offers no \`${path}\` to its pipeline`, "manifest_error", {
      hint: "edge-infer convert FOLDER -o model.bundle",
      details: { field: path },
    });
  }
}
