/** The ways to run a model here: engine, variant, device and threads; and why some of them cannot be taken. */

import { HAS_SERVER, HAS_WEBGPU } from "./catalog.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {"compiled" | "ort" | "litert" | "server"} EngineId */
/**
 * @typedef {object} Way
 * @property {EngineId} engine
 * @property {string} variant The id of the variant.
 * @property {"wasm" | "webgpu"} device
 * @property {string} threads A number, or `auto`.
 */
/** @typedef {{id: string, text: string, refused?: string}} Option */

/** By engine its name, and the format that it reads. @type {Record<EngineId, {name: string, format: string}>} */
export const ENGINES = {
  compiled: { name: "compiled", format: "compiled" },
  ort: { name: "onnxruntime-web", format: "onnx" },
  litert: { name: "LiteRT.js", format: "tflite" },
  server: { name: "server", format: "" },
};

/** @param {Model} model @returns {Option[]} */
export function engineOptions(model) {
  return Object.entries(ENGINES).map(([id, { name, format }]) => {
    const isThere = !format || model.variants.some((variant) => variant.format === format);
    if (id === "server" && (!HAS_SERVER || model.files)) return { id, text: name, refused: model.files ? "The server does not have this bundle" : "This page has no server" };
    return { id, text: name, refused: isThere ? "" : `The bundle has no ${format} variant` };
  });
}

/** @param {Model} model @returns {Option[]} */
export function variantOptions(model) {
  return model.variants.map(({ id }) => ({ id, text: id }));
}

/** @returns {Option[]} */
export function deviceOptions() {
  const hasGpu = "gpu" in navigator && Boolean(navigator.gpu);
  const refused = !HAS_WEBGPU ? "This page was exported without it: edge-infer export-page --webgpu" : hasGpu ? "" : "This browser has no WebGPU";
  return [{ id: "wasm", text: "CPU" }, { id: "webgpu", text: "WebGPU", refused }];
}

/** @returns {Option[]} */
export function threadOptions() {
  const cores = navigator.hardwareConcurrency || 1;
  const why = crossOriginIsolated ? "" : "The page is not cross-origin isolated: one thread";
  const counts = [...new Set([2, 4, cores].filter((count) => count <= cores))].sort((a, b) => a - b);
  return [{ id: "auto", text: "auto" }, { id: "1", text: "1" }, ...counts.filter((count) => count > 1).map((count) => ({ id: String(count), text: String(count), refused: why }))];
}

/**
 * The engine that reads a variant in a page.
 *
 * @param {Model} model
 * @param {string} id
 * @returns {EngineId}
 */
export function engineOf(model, id) {
  const format = model.variants.find((variant) => variant.id === id)?.format;
  const found = Object.entries(ENGINES).find(([, engine]) => engine.format === format);
  return /** @type {EngineId} */ (found?.[0] ?? "ort");
}

/**
 * The variant that an engine takes: the one that is chosen where the engine reads it, else its first one.
 *
 * @param {Model} model
 * @param {EngineId} engine
 * @param {string} chosen
 * @returns {string}
 */
export function variantFor(model, engine, chosen) {
  if (engine === "server" || engineOf(model, chosen) === engine) return chosen;
  return model.variants.find(({ format }) => format === ENGINES[engine].format)?.id ?? chosen;
}

/**
 * A way as an address holds it, for a link that opens the same setup.
 *
 * @param {Way} way
 * @returns {string}
 */
export function wayToQuery(way) {
  return new URLSearchParams({ ...way }).toString();
}

/**
 * Read a way from an address.
 *
 * @param {Model} model
 * @param {URLSearchParams} query
 * @returns {Partial<Way>} What it names and the model has.
 */
export function wayOfQuery(model, query) {
  /** @type {Partial<Way>} */
  const way = {};
  const variant = query.get("variant");
  if (model.variants.some(({ id }) => id === variant)) way.variant = variant ?? "";
  const engine = query.get("engine");
  if (engineOptions(model).some(({ id, refused }) => id === engine && !refused)) way.engine = /** @type {EngineId} */ (engine);
  if (query.get("device") === "webgpu" && HAS_WEBGPU) way.device = "webgpu";
  if (/^\d{1,2}$/.test(query.get("threads") ?? "")) way.threads = query.get("threads") ?? "auto";
  return way;
}
