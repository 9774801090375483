/** The models that the server has, and the manifest of each. */

import { InferError } from "../src/index.js";

/** @typedef {import("../src/bundle/bundle.js").Variant} Variant */
/** @typedef {import("../src/tensors.js").TensorSpec} TensorSpec */
/**
 * @typedef {object} Entry A model as the server lists it.
 * @property {string} name
 * @property {string} url
 * @property {string} [revision]
 * @property {string} [version]
 * @property {string} [task]
 * @property {string | null} [license] The licence of the weights, where the bundle says it.
 * @property {string[]} [samples] Paths of pictures or sounds in the bundle to try it on.
 * @property {{id: string, format: string, precision: string, size: number}[]} [variants]
 * @property {import("../src/errors.js").ErrorDocument} [error] What is wrong with its bundle.
 */
/**
 * @typedef {object} Model A model whose manifest is read.
 * @property {string} name
 * @property {string} url
 * @property {string} revision
 * @property {string} version
 * @property {string} task Empty where the bundle names none.
 * @property {string} license Empty where the bundle names none.
 * @property {string[]} samples The addresses of pictures or sounds to try it on.
 * @property {boolean} hasPipeline Whether it answers raw data.
 * @property {TensorSpec[]} inputs
 * @property {TensorSpec[]} outputs
 * @property {string[]} labels
 * @property {string} examples The path of its golden examples in the bundle; empty where it has none.
 * @property {(Variant & {size: number})[]} variants
 */

/** An exported page names its list of models; it has no server. */
const listed = document.querySelector("meta[name=edge-infer-models]")?.getAttribute("content");
const MODELS = listed ? new URL(listed, location.href.split("#")[0]) : new URL("../models/", import.meta.url);

/** Whether a server of ours answers beside the page. */
export const HAS_SERVER = !listed;

/** @returns {Promise<Entry[]>} @throws {InferError} The server does not answer. */
export async function entries() {
  return (await json(MODELS)).models;
}

/**
 * @param {Entry} entry
 * @returns {Promise<Model>}
 * @throws {InferError} The bundle is wrong, or the server does not answer.
 */
export async function modelOf(entry) {
  if (entry.error) throw InferError.fromJSON(entry.error);
  const url = new URL(entry.url, location.href).href;
  const manifest = await json(new URL("manifest.json", `${url.replace(/\/$/, "")}/`));
  if (manifest.chain) {
    const hint = `openChain("${entry.url}") runs it in a page, POST /v2/models/${entry.name}/predict on the server`;
    throw new InferError(`\`${entry.name}\` is a chain of several models, which this page does not show`, "unsupported", { hint });
  }
  const sizes = new Map((entry.variants ?? []).map(({ id, size }) => [id, size]));
  const labels = manifest.labels ? await json(new URL(manifest.labels, `${url.replace(/\/$/, "")}/`)) : [];
  return {
    name: entry.name,
    url,
    revision: entry.revision ?? "",
    version: entry.version ?? "",
    task: manifest.task ?? "",
    license: manifest.license ?? "",
    samples: (manifest.files ?? []).map((/** @type {{path: string}} */ { path }) => path).filter((/** @type {string} */ path) => path.startsWith("samples/")).map((/** @type {string} */ path) => `${url.replace(/\/$/, "")}/${path}`),
    hasPipeline: Boolean(manifest.task && manifest.pipeline),
    inputs: manifest.inputs,
    outputs: manifest.outputs,
    labels,
    examples: manifest.examples ?? "",
    variants: manifest.variants.map((/** @type {Variant} */ variant) => ({ ...variant, size: sizes.get(variant.id) ?? 0 })),
  };
}

/** What the server said is kept under this name and its path, for a visit without the server. */
const KEPT = "edge-infer";
/** A longer document is not kept: storage of this kind is small. */
const MAX_KEPT = 200_000;

/** @param {URL} url @returns {Promise<any>} */
async function json(url) {
  let response;
  try {
    response = await fetch(url);
  } catch (cause) {
    const kept = recall(url);
    if (kept !== null) return JSON.parse(kept);
    throw new InferError("The server does not answer", "fetch_error", { hint: HAS_SERVER ? "start it again: `edge-infer serve`" : "is the host reachable?", cause });
  }
  const text = await response.text();
  if (response.ok) {
    keep(url, text);
    return JSON.parse(text);
  }
  throw refusal(text) ?? new InferError(`The server answers ${response.status} for ${url.pathname}`, "fetch_error", { hint: "look at what `edge-infer serve` prints" });
}

/** @param {string} text @returns {InferError | null} What the server says of an error; null where it says nothing. */
function refusal(text) {
  try {
    const document = JSON.parse(text);
    return document?.error ? InferError.fromJSON(document) : null;
  } catch {
    return null;
  }
}

/** @param {URL} url @param {string} text */
function keep({ pathname }, text) {
  try {
    if (text.length <= MAX_KEPT) localStorage.setItem(`${KEPT} ${pathname}`, text);
  } catch {
    // Storage is denied or full: the page works, with its server.
  }
}

/** @param {URL} url @returns {string | null} */
function recall({ pathname }) {
  try {
    return localStorage.getItem(`${KEPT} ${pathname}`);
  } catch {
    return null;
  }
}
