/**
 * Run a bundle in a page: `load` and `pipeline` with JavaScript only, `loadPython` with Python.
 *
 *     import { load } from "/src/index.js";
 *     const session = await load("/models/digits");
 *     const { logits } = await session.run({ image: new Float32Array(64) });
 *
 * Engine and Python run in module workers; in Node and in a service worker the engine runs on the thread that asks. Nothing
 * happens at import.
 */
/// <reference lib="esnext.disposable" preserve="true" />

import { EdgeInferError } from "./errors.js";
import { rootOf } from "./fetch/root.js";
import { addressOf } from "./page/address.js";
import { load } from "./page/load.js";
import { pipeline } from "./page/pipeline.js";
import { Session, enter, leave, withWorker } from "./page/session.js";
import { VERSION } from "./version.js";

export { EdgeInferError, Session, VERSION, load, pipeline };

/** @typedef {import("./page/protocol.js").Opened} Opened */
/** @typedef {import("./page/protocol.js").Report} Report */
/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./fetch/download.js").OnProgress} OnProgress */
/** @typedef {import("./bundle/measured.js").EngineName} EngineName */
/** @typedef {import("./page/live.js").Update} Update */
/** @typedef {import("./page/live.js").LiveModel} LiveModel */
/** @typedef {import("./page/load.js").OwnOptions} OwnOptions */
/** @typedef {import("./page/load.js").SessionOptions} SessionOptions */
/** @typedef {import("./page/pipeline.js").PipelineOptions} PipelineOptions */
/** @typedef {import("./page/pipeline.js").Pipeline} Pipeline */
/** @typedef {import("./page/python.js").PythonWorker} PythonWorker */
/** @typedef {import("./page/load-python.js").PythonOptions} PythonOptions */

/** @typedef {import("./page/generator.js").GeneratorOptions} GeneratorOptions */
/** @typedef {import("./page/generator.js").Generator} Generator */

/**
 * Load a model that generates text, in a worker of its own; where there are no workers, as in Node, on the thread that asks.
 *
 *     const generator = await generate("/models/smol");
 *     for await (const piece of generator.stream("Hello", { seed: 1 })) document.body.append(piece);
 *
 * The same options and seed give the same tokens as `edge_infer.generate`.
 *
 * @param {URL | string} url The address of a bundle with `generate` in its manifest; in Node also a folder.
 * @param {GeneratorOptions} [options]
 * @returns {Promise<Generator>}
 * @throws {EdgeInferError} The bundle is missing or wrong; `unsupported`: it generates no text; the signal's reason where it is aborted.
 */
export async function generate(url, options = {}) {
  const { openGenerator } = await import("./page/generator.js");
  return openGenerator(addressOf(url), { ...options, root: rootOf(options.root) });
}

/**
 * Fetch an index that `edge-infer index build` made, and search it in the page: the same ids and scores as in Python.
 *
 *     const notes = await openIndex("/notes.index", { model: "/models/minilm" });
 *     const [best] = await notes.search("how do I reset it?", { k: 5 });
 *     console.log(best.text, best.score);
 *
 * @param {URL | string} url The address of its folder; or, as `edge+https://HOST/STORE/NAME` or `edge+/store/NAME`, of an index of a
 *   signed store: its newest version, of which only new segments are fetched, and which is there without a network from then on.
 * @param {import("./page/search.js").OpenIndexOptions} [options]
 *   `model` is the bundle that the index was built by, or a function that makes vectors of texts; none is needed to search by
 *   vectors or by words. `trust` is the text of a store's first `root.json`.
 * @returns {Promise<import("./vectors/search-index.js").SearchIndex>}
 * @throws {EdgeInferError} `integrity_error`: a file is damaged, or the bundle is of other weights than the vectors of the index.
 */
export async function openIndex(url, options = {}) {
  return (await import("./page/search.js")).openIndex(url, options);
}

/**
 * Open an index of the reader's own documents, which is made in the page and kept in its storage; it works offline.
 *
 *     const notes = await ownIndex("notes", { model: "/models/minilm" });
 *     await notes.add(document.querySelector("input[type=file]").files);
 *     const [best] = await notes.search("how do I reset it?");
 *
 * @param {string} name Its name in the page's storage.
 * @param {import("./page/search.js").OwnIndexOptions} options `model` is a bundle for feature-extraction; its float
 *   weights are taken where it has some, unless `variant` says otherwise. `renew` embeds what another model made anew, and begins
 *   empty where what was kept is damaged. The rest is what `load` takes.
 * @returns {Promise<import("./vectors/own-index.js").OwnIndex>} Empty where nothing was kept.
 * @throws {EdgeInferError} `input_error`: the bundle gives no vector for a text. `unsupported`: what was kept was made by another model or
 *   revision. `integrity_error`, `bundle_error`: it is damaged. It stays as it is. And what `load` throws.
 */
export async function ownIndex(name, options) {
  return (await import("./page/search.js")).ownIndex(name, options);
}

/**
 * Open a chain that `edge-infer chain` made: bundles that feed one another, with the same answers as `edge_infer.Chain`.
 *
 *     const chain = await openChain("/models/faces-and-moods");
 *     const { faces, moods } = await chain.answer("photo.jpg");
 *
 * @param {URL | string} url The address of its bundle.
 * @param {Omit<SessionOptions, "variant" | "backend" | "fallback" | "latencyBudgetMs"> & {cache?: import("./chains/cache.js").StepCache}} [options] What `load` takes for all models, and where
 *   steps that are marked `cache` keep their results: the memory of the page unless given.
 * @returns {Promise<import("./chains/chain.js").Chain>}
 * @throws {EdgeInferError} `manifest_error`: the chain is wrong: a circle, a name that is not there, kinds that do not fit. And what `load` throws.
 */
export async function openChain(url, { cache, ...options } = {}) {
  const { Chain } = await import("./chains/chain.js");
  const { keep, root, apiKey, onProgress, signal } = options;
  const openers = {
    load: (/** @type {string} */ place) => load(place, options),
    pipeline: (/** @type {string} */ place) => pipeline(place, options),
    openIndex: (/** @type {string} */ place) => openIndex(place, { apiKey, onProgress, signal }),
    generate: (/** @type {string} */ place) => generate(place, { keep, root, apiKey, onProgress, signal }),
    apiKey,
  };
  return Chain.open(addressOf(url), openers, { cache, signal });
}

/**
 * Measure the ways to run a bundle in this browser, on its golden examples, and remember them: from then on `load`
 * takes the fastest of those that it is asked for.
 *
 * @param {URL | string} url The address of a bundle.
 * @param {import("./page/tune.js").TuneOptions} [options]
 * @returns {Promise<import("./page/tune.js").Tuning>}
 * @throws {EdgeInferError} The bundle is missing or wrong, or no way works here; the signal's reason where it is aborted.
 */
export async function tune(url, options = {}) {
  const { measure } = await import("./page/tune.js");
  return measure(addressOf(url), rootOf(options.root), options);
}

/** @typedef {import("./page/preflight.js").Preflight} Preflight */

/**
 * Tell what `load` would do with a bundle, before it does it: nothing but the manifest is fetched.
 *
 *     const { variant, bytesToFetch, expectedMs } = await check("/models/digits");
 *
 * @param {URL | string} url The address of a bundle.
 * @param {Pick<SessionOptions, "variant" | "backend" | "device" | "threads" | "root" | "apiKey" | "keep" | "signal">} [options] What
 *   `load` would be given.
 * @returns {Promise<Preflight>}
 * @throws {EdgeInferError} What `load` would throw before it fetches the model.
 */
export async function check(url, { root, threads, signal, keep = true, ...asked } = {}) {
  const settings = { root: rootOf(root), threads };
  const used = enter(settings.root);
  try {
    return await used.request({ kind: "check", url: addressOf(url), keep, settings, ...asked }, { signal });
  } finally {
    leave(used);
  }
}

/** @returns {Promise<import("./cache/store.js").Kept[]>} The models in this page's storage, the one used last first. */
export function keptModels() {
  return withWorker((worker) => worker.request({ kind: "kept" }));
}

/** Remove all models from this page's storage. Sessions that are open go on. */
export async function clearModels() {
  await withWorker((worker) => worker.request({ kind: "clear" }));
}

/**
 * Make this page work without its server from the next visit on: a service worker keeps the page, its scripts and styles,
 * what its sessions and its Python have loaded until now, and the modules that these may import later. Models are kept by
 * their sessions, and an engine only where it was used: call it when all is loaded.
 *
 * @param {import("./page/offline.js").OfflineOptions & {root?: URL | string}} [options]
 * @returns {Promise<import("./page/offline.js").Kept>} `isKept` is false, and `why` says why, where the browser cannot.
 * @throws {EdgeInferError} `unsupported`: the service worker may not serve this page; `fetch_error` or `integrity_error`: a file is
 *   gone, or not the one of this build; what was kept before stays.
 */
export async function keepOffline({ root, ...options } = {}) {
  return (await import("./page/offline.js")).keepOffline(options, rootOf(root));
}

/** Undo `keepOffline`. Models stay until `clearModels`. */
export async function forgetOffline() {
  await (await import("./page/offline.js")).forgetOffline();
}

/**
 * Start Python with edge-infer in a worker of its own. Its engines are started before any code runs, so that
 * `edge_infer.load(...)` is synchronous there.
 *
 * @param {PythonOptions} [options]
 * @returns {Promise<PythonWorker>}
 * @throws {EdgeInferError} A file is missing, or of another version than this package is tested with.
 */
export async function loadPython(options = {}) {
  return (await import("./page/load-python.js")).loadPython(options);
}

/**
 * Keep an image of a fresh Python now; `loadPython` does it by itself, later.
 *
 * @param {{root?: URL | string}} [options]
 * @returns {Promise<boolean>} Whether one is kept now: not where the page has no storage, or no room.
 */
export async function keepPythonImage(options = {}) {
  return (await import("./page/load-python.js")).keepPythonImage(options);
}
