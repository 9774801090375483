/** Tell what `load` would do, before it does it: which variant and engine, what is to be fetched, how long a run takes. */

import { openBundle } from "../bundle/bundle.js";
import { decide, engineOf } from "../bundle/selection.js";
import { fastest, recallMeasured, wrongVariants } from "../bundle/measured.js";
import { filesFor } from "../engines/files.js";
import { canShareMemory } from "../engines/threads.js";

/** @typedef {import("../cache/store.js").Store} Store */
/**
 * @typedef {object} Needed A file that the load needs.
 * @property {string} url
 * @property {number} bytes What it has, unpacked; compressed as servers send it an engine has about a fifth of that.
 * @property {number} here How many of them are in this browser: in the storage of models, or in its caches.
 */
/**
 * @typedef {object} Preflight
 * @property {string} model The bundle's name and the first digits of its revision.
 * @property {string} variant The id of the variant that would be taken.
 * @property {string} why What decides on it, as in `report().why`.
 * @property {import("../bundle/measured.js").EngineName} engine
 * @property {"wasm" | "webgpu" | "webnn"} device
 * @property {Needed[]} files The model, and what its engine consists of.
 * @property {number} bytesToFetch
 * @property {number} bytesHere
 * @property {number | null} expectedMs The time of a run, where `tune` has measured this way here; else null.
 * @property {number} memoryBytes About what it takes while it loads: the file, the engine, and the weights in it.
 * @property {string[]} notBetter Why something faster is not used, in words.
 * @property {boolean} offline Whether the server could not be reached, and the manifest is the one of the last visit.
 */
/** @typedef {import("../bundle/measured.js").Asked & {apiKey?: string}} CheckOptions */

// What an engine takes before it has a model, measured with the pinned versions: its memory, not its code.
const ENGINE_MEMORY = { ort: 16_777_216, litert: 16_777_216, compiled: 0 };
/** The offline copy of a page, which `keepOffline` makes. */
const OFFLINE = "edge-infer-offline";

/**
 * @param {string} url
 * @param {string} root
 * @param {CheckOptions} asked
 * @param {Store | undefined} store
 * @param {AbortSignal} signal
 * @returns {Promise<Preflight>}
 * @throws {import("../errors.js").EdgeInferError} What `load` would throw before it fetches the model.
 */
export async function preflight(url, root, asked, store, signal) {
  const { manifest, revision, isOffline } = await openBundle(url, { signal, apiKey: asked.apiKey, store });
  const { rows, wrong } = store ? await recallMeasured(store, revision) : { rows: [], wrong: [] };
  const accelerator = asked.device === "webgpu" || asked.device === "webnn" ? asked.device : undefined;
  const precisions = accelerator === "webgpu" ? await (await import("../engines/ort-webgpu.js")).preferredPrecisions() : undefined;
  const order = accelerator ? { formats: ["onnx", "tflite", "compiled"], precisions } : {};
  const { chosen, found, why } = decide(manifest, { best: fastest(rows, asked), wrong: wrongVariants(wrong, asked) }, { ...asked, ...order });
  const engine = engineOf(chosen.format);
  /** @type {string[]} */
  const notBetter = [];
  /** @type {Preflight["device"]} */
  let device = found?.device ?? accelerator ?? "wasm";
  if (device !== "wasm" && (engine === "compiled" || (engine === "litert" && device === "webnn"))) {
    notBetter.push(`${device}: it does not run ${chosen.format} variants, such as ${chosen.id}`);
    device = "wasm";
  } else if (device === "webgpu" && engine === "litert" && !("Suspending" in WebAssembly)) {
    notBetter.push("webgpu: LiteRT.js needs a browser that switches stacks (JSPI)");
    device = "wasm";
  } else if (device === "webnn" && !("ml" in navigator)) {
    device = "wasm";
    notBetter.push("webnn: this browser has no WebNN, or the page is not secure");
  } else if (device === "webgpu" && !(await hasGpu())) {
    device = "wasm";
    notBetter.push("webgpu: this browser offers no GPU to this page");
  }
  if (engine !== "compiled" && device === "wasm" && !canShareMemory()) {
    notBetter.push(globalThis.crossOriginIsolated ? "threads: the browser has no SharedArrayBuffer" : "threads: the page is not cross-origin isolated (COOP and COEP headers)");
  }
  if (!found && manifest.variants.length > 1) notBetter.push("nothing was measured here: tune(url) measures which variant is the fastest");
  if (!store || store.kind === "memory") notBetter.push("the model is fetched at every visit: the page has no storage");

  const entry = manifest.files.find(({ path }) => path === chosen.file);
  const bytes = entry?.size ?? 0;
  const kept = entry && store ? Math.min(bytes, await store.place.size(entry.sha256)) : 0;
  const files = [{ url: new URL(chosen.file, `${new URL(url).href.replace(/\/?$/, "/")}`).href, bytes, here: kept }];
  for (const file of await filesFor(engine, device, root)) files.push({ ...file, here: (await isCached(file.url)) ? file.bytes : 0 });
  const bytesHere = files.reduce((sum, { here }) => sum + here, 0);
  return {
    model: `${manifest.name}@${revision.slice(0, 6)}`,
    variant: chosen.id,
    why,
    engine,
    device,
    files,
    bytesToFetch: files.reduce((sum, file) => sum + file.bytes, 0) - bytesHere,
    bytesHere,
    expectedMs: found?.ms ?? null,
    memoryBytes: ENGINE_MEMORY[engine] + 2 * bytes,
    notBetter,
    offline: isOffline,
  };
}

/** @returns {Promise<boolean>} */
async function hasGpu() {
  return Boolean(await /** @type {any} */ (globalThis.navigator)?.gpu?.requestAdapter().catch(() => null));
}

/**
 * @param {string} url
 * @returns {Promise<boolean>} Whether it is in a cache of this browser. Of another origin only the offline copy is known.
 */
async function isCached(url) {
  try {
    if (await (await globalThis.caches?.open(OFFLINE))?.match(url)) return true;
    if (new URL(url).origin !== globalThis.location?.origin) return false;
    const response = await fetch(url, { cache: "only-if-cached", mode: "same-origin" });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
