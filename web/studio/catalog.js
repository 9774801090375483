/** The models that the server has, and the manifest of each. */

import { EdgeInferError } from "../src/index.js";

/** @typedef {import("../src/bundle/manifest.js").Variant} Variant */
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
 * @property {boolean} [chat] Of one that generates text: whether it takes conversations.
 * @property {import("../src/errors.js").ErrorDocument} [error] What is wrong with its bundle.
 */
/** @typedef {{name: string, type: string, categories: (string | number)[]}} Column */
/**
 * @typedef {object} Model A model whose manifest is read.
 * @property {string} name
 * @property {string} url
 * @property {string} revision
 * @property {string} version
 * @property {string} task Empty where the bundle names none.
 * @property {boolean} chat Of one that generates text: whether it takes conversations.
 * @property {string} license Empty where the bundle names none.
 * @property {string[]} samples Paths of pictures or sounds in the bundle to try it on.
 * @property {Column[]} columns Those of a table that it takes; none where it takes something else.
 * @property {boolean} hasPipeline Whether it answers raw data.
 * @property {TensorSpec[]} inputs
 * @property {TensorSpec[]} outputs
 * @property {string[]} labels
 * @property {string} examples The path of its golden examples in the bundle; empty where it has none.
 * @property {(Variant & {size: number})[]} variants
 * @property {import("./inspect/dropped.js").Files} [files] Of a bundle that was dropped on the page: it has no address.
 */

const noted = (/** @type {string} */ name) => document.querySelector(`meta[name=edge-infer-${name}]`)?.getAttribute("content");
/** An exported page names its list of models; it has no server. */
const listed = noted("models");
const MODELS = listed ? new URL(listed, location.href.split("#")[0]) : new URL("../models/", import.meta.url);

/** Whether a server of ours answers beside the page. */
export const HAS_SERVER = !listed;
/** Whether the engine's builds for the GPU lie beside the page: an exported one may leave their 44 MB out. */
export const HAS_WEBGPU = (noted("devices") ?? "webgpu").includes("webgpu");

/** @returns {Promise<Entry[]>} @throws {EdgeInferError} The server does not answer. */
export async function entries() {
  return (await json(MODELS)).models;
}

/**
 * @param {Entry} entry
 * @returns {Promise<Model>}
 * @throws {EdgeInferError} The bundle is wrong, or the server does not answer.
 */
export async function modelOf(entry) {
  if (entry.error) throw EdgeInferError.fromJSON(entry.error);
  const url = new URL(entry.url, location.href).href;
  const manifest = await json(new URL("manifest.json", `${url.replace(/\/$/, "")}/`));
  if (manifest.chain) {
    const hint = `openChain("${entry.url}") runs it in a page, POST /v2/models/${entry.name}/predict on the server`;
    throw new EdgeInferError(`\`${entry.name}\` is a chain of several models, which this page does not show`, "unsupported", { hint });
  }
  const sizes = new Map((entry.variants ?? []).map(({ id, size }) => [id, size]));
  const labels = manifest.labels ? await json(new URL(manifest.labels, `${url.replace(/\/$/, "")}/`)) : [];
  return { ...modelOfManifest(manifest, labels, sizes), name: entry.name, url, revision: entry.revision ?? "", version: entry.version ?? "" };
}

/**
 * @param {any} manifest
 * @param {string[]} labels
 * @param {Map<string, number>} sizes By variant the bytes of its file.
 * @returns {Model} A model without an address.
 */
export function modelOfManifest(manifest, labels, sizes) {
  return {
    name: manifest.name,
    url: "",
    revision: "",
    version: manifest.version ?? "",
    task: manifest.task ?? "",
    chat: Boolean(manifest.generate?.chat_template),
    license: manifest.license ?? "",
    samples: (manifest.files ?? []).map((/** @type {{path: string}} */ { path }) => path).filter((/** @type {string} */ path) => path.startsWith("samples/")),
    columns: columnsOf(manifest.pipeline),
    hasPipeline: Boolean(manifest.task && manifest.pipeline),
    inputs: manifest.inputs,
    outputs: manifest.outputs,
    labels,
    examples: manifest.examples ?? "",
    variants: manifest.variants.map((/** @type {Variant} */ variant) => ({ ...variant, size: sizes.get(variant.id) ?? 0 })),
  };
}

/** @param {any} pipeline Of a manifest; undefined where there is none. @returns {Column[]} */
function columnsOf(pipeline) {
  const steps = /** @type {any[]} */ (Object.values(pipeline?.inputs ?? {}).flat());
  const { names = [], types = [] } = steps.find(({ step }) => step === "tabular.columns") ?? {};
  const { values = {} } = steps.find(({ step }) => step === "tabular.categories") ?? {};
  return names.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, type: types[i], categories: values[name] ?? [] }));
}

/** @param {string} url Of a bundle. @param {string} path In it. @returns {URL} */
export function addressOf(url, path) {
  return new URL(`${url.replace(/\/$/, "")}/${path.split("/").map(encodeURIComponent).join("/")}`, location.href);
}

/**
 * @param {Model} model
 * @param {string} path In its bundle.
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {EdgeInferError} `fetch_error`: the file does not come.
 */
export async function fileOf({ url, name, files }, path) {
  const here = files?.get(path);
  if (here) return here;
  const response = await fetch(addressOf(url, path)).catch((cause) => {
    throw new EdgeInferError(`\`${path}\` of ${name} could not be fetched`, "fetch_error", { hint: "is the network there?", cause });
  });
  if (!response.ok) throw new EdgeInferError(`\`${path}\` of ${name} is not there: the answer is ${response.status}`, "fetch_error", { hint: "reload the page" });
  return new Uint8Array(await response.arrayBuffer());
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
    throw new EdgeInferError("The server does not answer", "fetch_error", { hint: HAS_SERVER ? "start it again: `edge-infer serve`" : "is the host reachable?", cause });
  }
  const text = await response.text();
  if (response.ok) {
    keep(url, text);
    return JSON.parse(text);
  }
  throw refusal(text) ?? new EdgeInferError(`The server answers ${response.status} for ${url.pathname}`, "fetch_error", { hint: "look at what `edge-infer serve` prints" });
}

/** @param {string} text @returns {EdgeInferError | null} What the server says of an error; null where it says nothing. */
function refusal(text) {
  try {
    const document = JSON.parse(text);
    return document?.error ? EdgeInferError.fromJSON(document) : null;
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
