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

import { InferError } from "./errors.js";
import { rootOf } from "./fetch/root.js";
import { WorkerClient } from "./page/client.js";
import { PythonWorker } from "./page/python.js";
import { Session, buffersOf, enter, leave, withUpdate } from "./page/session.js";
import { VERSION } from "./version.js";

export { InferError, Session, VERSION };

/** @typedef {import("./page/protocol.js").Opened} Opened */
/** @typedef {import("./page/protocol.js").Report} Report */
/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./fetch/download.js").OnProgress} OnProgress */

/** @typedef {import("./bundle/bundle.js").EngineName} EngineName */
/** @typedef {import("./page/live.js").Update} Update */
/** @typedef {import("./page/live.js").LiveModel} LiveModel */

/**
 * @typedef {object} OwnOptions
 * @property {string} [variant] The id of the variant to load; chosen unless given.
 * @property {EngineName} [backend] The engine: `ort` is onnxruntime-web for ONNX variants, `litert` is LiteRT.js for TFLite
 *   ones, `compiled` is for compiled `.wasm` files, which need no engine. By the format unless given; ONNX comes before TFLite.
 * @property {"auto" | "wasm" | "webgpu" | "webnn"} [device] What to run on; `auto` is `wasm`. Where `webgpu` or `webnn` is not to be
 *   had, or fails later, the session goes on with wasm: the console warns, and `report().fallbacks` has the reason.
 * @property {boolean} [strict] Whether to reject where the session would not run on `device`, instead of going on with wasm.
 * @property {number} [threads] How many threads an operator may use; see `startOrtEngine`. The first session decides.
 * @property {URL | string} [root] The URL under which `src/` and `vendor/` lie; that of this module unless given.
 * @property {OnProgress} [onProgress] Told how far the downloads have come.
 * @property {AbortSignal} [signal] Gives up the load; what has arrived until then is kept.
 * @property {boolean} [keep] Whether the model is kept in the page's storage for the next visit; it is unless false.
 * @property {string} [apiKey] What the bundle's server asks for, where it has tenants. Whoever may read the page may read it.
 * @property {boolean} [selfTest] Whether the model has to give its golden outputs before it is handed over; a bundle without golden
 *   examples is refused. Of a `pipeline` its steps and answers have to be those of the bundle's vectors too.
 * @property {boolean} [tune] Whether the ways to run the model are measured first, where that was not done in this browser.
 * @property {URL | string} [fallback] The same model on a server, `http://HOST/v2/models/NAME`, by the rules of Python's `load`: where
 *   no engine here can load it, where it was measured to be slower than `latencyBudgetMs` or turns out to be, and for runs that fail for
 *   want of memory. `report().fallbacks` says what went there. `apiKey` is told only to the bundle's own server. Streams stay here.
 *   Of an `edge+` address it may be a plain bundle instead; see `StoreOptions`.
 * @property {number} [latencyBudgetMs] The milliseconds that a run may take before the server of `fallback` is taken.
 */
/** @typedef {OwnOptions & Omit<import("./page/live.js").StoreOptions, "fallback">} SessionOptions Those of a store are for `edge+` addresses. */

/** What an address of STORE/MODEL begins with. */
const STORE = "edge+";
// When the image of Python is made: the first answers of a page come before it.
const IMAGE_DELAY_MS = 5000;

/**
 * Load a model.
 *
 * @param {URL | string} url The address of a bundle, of a bare `.onnx`, `.tflite` or compiled `.wasm` file, or, as
 *   `edge+https://HOST/STORE/MODEL` or `edge+/store/MODEL`, of a model of a signed store, whose newest version is loaded
 *   and can be followed.
 * @param {SessionOptions} [options]
 * @returns {Promise<Session>}
 * @throws {InferError} The bundle is missing or wrong, the engine cannot start here or cannot load the model; the signal's
 *   reason where it is aborted.
 */
export async function load(url, options = {}) {
  const { fallback, latencyBudgetMs, apiKey, signal } = options;
  if (fallback === undefined && latencyBudgetMs !== undefined) {
    throw new InferError("`latencyBudgetMs` is for a model with a server to fall back to", "input_error", { hint: 'fallback: "http://HOST/v2/models/NAME"' });
  }
  if (fallback === undefined) return loadHere(url, options);
  const { FallbackModel, fallbackOf, mayBeServed, namesServer, openServed } = await import("./page/fallback.js");
  const ofStore = String(url).startsWith(STORE);
  if (ofStore && !namesServer(fallback) && latencyBudgetMs === undefined) return loadHere(url, options);
  const server = fallbackOf(fallback, latencyBudgetMs, addressOf(ofStore ? String(url).slice(STORE.length) : url), apiKey);
  try {
    return await loadHere(url, { ...options, fallback: undefined }, new FallbackModel(server));
  } catch (error) {
    signal?.throwIfAborted();
    if (!mayBeServed(error)) throw error;
    const { served, opened } = await openServed(server, error, signal);
    return new Session(enter(rootOf(options.root)), opened, { served });
  }
}

/**
 * @param {URL | string} url
 * @param {SessionOptions & {refusesPairs?: boolean}} options
 * @param {import("./page/fallback.js").FallbackModel} [fallback]
 * @returns {Promise<Session>}
 */
async function loadHere(url, options, fallback) {
  const { variant, backend, device, strict, threads, root, onProgress, signal, keep = true, apiKey, selfTest, tune: isTuned, latencyBudgetMs, refusesPairs, ...ofStore } = options;
  const text = String(url);
  const isOfStore = text.startsWith(STORE);
  const address = addressOf(isOfStore ? text.slice(STORE.length) : text);
  const settings = { root: rootOf(root), threads };
  const used = enter(settings.root);
  /** @type {LiveModel | undefined} */
  let live;
  const open = (/** @type {Partial<import("./page/protocol.js").OpenRequest>} */ more, /** @type {Transferable[]} */ moved = []) =>
    used.request({ kind: "open", url: "", variant, backend, device, strict, keep, settings, latencyBudgetMs, ...more }, { onProgress, signal, transfer: moved });
  try {
    if (!isOfStore) {
      const asked = { variant, backend, device, threads, apiKey, onProgress, signal };
      if (isTuned && keep) await (await import("./page/tune.js")).measureOnce(used, address, settings.root, asked);
      return new Session(used, await open({ url: address, apiKey, selfTest, refusesPairs }), { fallback });
    }
    live = new (await import("./page/live.js")).LiveModel(address, settings.root, ofStore);
    try {
      const { taken, update } = await live.take({ mayBeOld: true, onProgress, signal }, ({ files, isNew, isOffline }) =>
        open({ files, selfTest, trial: isNew ? address : "" }, buffersOf(files)).then((opened) => ({ ...opened, report: { ...opened.report, offline: isOffline } })),
      );
      return new Session(used, withUpdate(taken, update), { live, variant, fallback });
    } catch (error) {
      const { fallback: plain } = ofStore;
      if (!(error instanceof InferError && error.code === "unsupported" && plain)) throw error;
      live.close();
      const opened = await open({ url: new URL(plain, globalThis.location?.href).href, selfTest });
      const notices = [...opened.report.notices, `${error.message}; the plain bundle ${plain} is used, unsigned`];
      return new Session(used, { ...opened, report: { ...opened.report, notices } });
    }
  } catch (error) {
    live?.close();
    leave(used);
    throw error;
  }
}

/** @typedef {SessionOptions & {task?: string}} PipelineOptions What `load` takes, and the task that the bundle must have. */
/** @typedef {import("./tasks/pipeline.js").Answering & {session: Session}} Pipeline A function that answers, and the model in it. */

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
 * @throws {InferError} `unsupported`: the bundle does not say what stands before and after the model. `manifest_error`: what
 *   it says is wrong, or does not fit the model. `input_error`: it is for another task. And what `load` throws.
 */
export async function pipeline(url, options = {}, more = {}) {
  const isTaskFirst = typeof options === "string" || options instanceof URL;
  const { task: given, ...loading } = isTaskFirst ? more : options;
  if (isTaskFirst && given !== undefined) {
    throw new InferError("The task is given twice", "input_error", { hint: 'pipeline("image-classification", "/models/mobilenet")' });
  }
  const task = isTaskFirst ? String(url) : given;
  const address = isTaskFirst ? /** @type {URL | string} */ (options) : url;
  if (task === "text-generation") return openTextPipeline(address, loading);
  if (task !== undefined && TASKS_OF_PAIRS.includes(task)) return openPairPipeline(address, task, loading);
  if (task === SPEECH_TASK && (await isPairBundle(address, loading))) return openPairPipeline(address, task, loading);
  const fetched = import("./tasks/pipeline.js");
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
  const { textPipeline } = await import("./page/text-pipeline.js");
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
  const { sequencePipeline } = await import("./page/sequence-pipeline.js");
  return sequencePipeline(addressOf(url), task, { ...options, root: rootOf(options.root) });
}

/** @param {URL | string} url @param {Record<string, any>} options @returns {Promise<boolean>} Whether a bundle has an encoder and a decoder. */
async function isPairBundle(url, { signal, apiKey }) {
  const address = addressOf(url);
  if (address.startsWith(STORE)) return false;
  const [{ openBundle }, { isPair }] = await Promise.all([import("./bundle/bundle.js"), import("./generation/pair-kind.js")]);
  try {
    return isPair((await openBundle(address, { signal, apiKey })).manifest);
  } catch (error) {
    if (error instanceof InferError && error.code === "fetch_error") return false; // the load will say it, or it is a folder of the Hub
    throw error;
  }
}

/**
 * @param {URL | string} url
 * @param {Record<string, any>} options
 * @param {string | undefined} task The task that is wanted.
 * @returns {Promise<Session | import("./tasks/sources/folder.js").HubModel<Session> | null>} Null for a bundle with an encoder and a decoder, of which
 *   only the manifest was fetched.
 */
async function loadUnlessPair(url, options, task) {
  try {
    return await load(url, task === undefined ? { ...options, refusesPairs: true } : options);
  } catch (error) {
    if (error instanceof InferError && error.details?.isPair) return null;
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
  if (!(error instanceof InferError && error.code === "fetch_error") || String(url).startsWith(STORE)) return null;
  const { isMissing, isUnreachable, openHubFolder } = await import("./tasks/sources/folder.js");
  if (!isMissing(error) && !isUnreachable(error)) return null;
  const { keep = true, apiKey, signal } = options;
  return withWorker((worker) => {
    const read = (/** @type {URL} */ place) => worker.request({ kind: "file", url: place.href, keep, apiKey }, { signal });
    return openHubFolder(addressOf(url), (file) => load(file, options), task, read);
  }, options.root);
}

/** @param {{read: (path: string) => Promise<Uint8Array<ArrayBuffer>>}} session */
async function isPairSession(session) {
  const { isPair } = await import("./generation/pair-kind.js");
  return isPair(JSON.parse(new TextDecoder().decode(await session.read("manifest.json"))));
}

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
 * @throws {InferError} The bundle is missing or wrong; `unsupported`: it generates no text; the signal's reason where it is aborted.
 */
export async function generate(url, options = {}) {
  const { openGenerator } = await import("./page/generator.js");
  return openGenerator(addressOf(url), { ...options, root: rootOf(options.root) });
}

/** @param {URL | string} url @returns {string} In Node a path is one of this machine. */
function addressOf(url) {
  return new URL(url, globalThis.location?.href ?? `file://${globalThis.process?.cwd()}/`).href;
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
 * @param {Omit<import("./vectors/search-index.js").IndexOptions, "embed"> & {model?: URL | string | import("./vectors/search-index.js").Embed, modelOptions?: SessionOptions, trust?: string, root?: URL | string}} [options]
 *   `model` is the bundle that the index was built by, or a function that makes vectors of texts; none is needed to search by
 *   vectors or by words. `trust` is the text of a store's first `root.json`.
 * @returns {Promise<import("./vectors/search-index.js").SearchIndex>}
 * @throws {InferError} `integrity_error`: a file is damaged, or the bundle is of other weights than the vectors of the index.
 */
export async function openIndex(url, { model, modelOptions, trust, root, ...options } = {}) {
  const { SearchIndex } = await import("./vectors/search-index.js");
  const open = async () => {
    if (!String(url).startsWith(STORE)) return SearchIndex.open(url, options);
    const { LiveModel } = await import("./page/live.js");
    const live = new LiveModel(addressOf(String(url).slice(STORE.length)), rootOf(root), { trust });
    const { onProgress, signal } = options;
    try {
      const { taken, update } = await live.take({ mayBeOld: true, onProgress, signal }, ({ files }) => SearchIndex.ofFiles(files));
      return Object.assign(/** @type {import("./vectors/search-index.js").SearchIndex} */ (taken), { update });
    } finally {
      live.close();
    }
  };
  if (model === undefined || typeof model === "function") return Object.assign(await open(), { embed: model });
  const [index, embed] = await Promise.all([open(), pipeline(model, modelOptions)]);
  try {
    await index.checkRevision(await embed.session.read("manifest.json"));
  } catch (error) {
    await embed.session.dispose();
    throw error;
  }
  index.embed = embed;
  return index;
}

/**
 * Open an index of the reader's own documents, which is made in the page and kept in its storage; it works offline.
 *
 *     const notes = await ownIndex("notes", { model: "/models/minilm" });
 *     await notes.add(document.querySelector("input[type=file]").files);
 *     const [best] = await notes.search("how do I reset it?");
 *
 * @param {string} name Its name in the page's storage.
 * @param {SessionOptions & {model: URL | string, renew?: boolean, onRenewed?: (done: number, total: number) => void}} options `model` is a bundle for feature-extraction; its float
 *   weights are taken where it has some, unless `variant` says otherwise. `renew` embeds what another model made anew, and begins
 *   empty where what was kept is damaged. The rest is what `load` takes.
 * @returns {Promise<import("./vectors/own-index.js").OwnIndex>} Empty where nothing was kept.
 * @throws {InferError} `input_error`: the bundle gives no vector for a text. `unsupported`: what was kept was made by another model or
 *   revision. `integrity_error`, `bundle_error`: it is damaged. It stays as it is. And what `load` throws.
 */
export async function ownIndex(name, { model, renew, onRenewed, ...options }) {
  const [{ OwnIndex }, { openFolder }, { embedderOf }] = await Promise.all([
    import("./vectors/own-index.js"),
    import("./vectors/own-folder.js"),
    import("./vectors/embedder.js"),
  ]);
  const folder = await openFolder(name);
  const embedder = await embedderOf(addressOf(model), (/** @type {string} */ url, /** @type {any} */ more) => pipeline("feature-extraction", url, { ...more, ...options }), options.apiKey);
  try {
    return await OwnIndex.open(folder, embedder, { renew, onRenewed });
  } catch (error) {
    await embedder.close?.();
    throw error;
  }
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
 * @throws {InferError} `manifest_error`: the chain is wrong: a circle, a name that is not there, kinds that do not fit. And what `load` throws.
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
 * @throws {InferError} The bundle is missing or wrong, or no way works here; the signal's reason where it is aborted.
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
 * @throws {InferError} What `load` would throw before it fetches the model.
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
 * @template T
 * @param {(client: import("./page/own-thread.js").Client) => Promise<T>} work
 * @param {URL | string} [root]
 * @returns {Promise<T>}
 */
async function withWorker(work, root) {
  const used = enter(root === undefined ? undefined : rootOf(root));
  try {
    return await work(used);
  } finally {
    leave(used);
  }
}

/**
 * Make this page work without its server from the next visit on: a service worker keeps the page, its scripts and styles,
 * what its sessions and its Python have loaded until now, and the modules that these may import later. Models are kept by
 * their sessions, and an engine only where it was used: call it when all is loaded.
 *
 * @param {import("./page/offline.js").OfflineOptions & {root?: URL | string}} [options]
 * @returns {Promise<import("./page/offline.js").Kept>} `isKept` is false, and `why` says why, where the browser cannot.
 * @throws {InferError} `unsupported`: the service worker may not serve this page; `fetch_error` or `integrity_error`: a file is
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
 * @typedef {object} PythonOptions
 * @property {number} [threads] How many threads an operator may use; see `startOrtEngine`.
 * @property {EngineName[]} [engines] The engines to start before any code runs: `ort`, for ONNX, unless given;
 *   `litert` is for TFLite. `["compiled"]` fetches no engine: compiled models run in every case. `report()` names the first one.
 * @property {URL | string} [root] The URL under which `src/`, `vendor/` and `wheels/` lie.
 * @property {URL | string | null} [wheel] The address of edge-infer's wheel, or of the part of it that a
 *   page needs, which is taken unless given; null to install none.
 * @property {OnProgress} [onProgress] Told how far the downloads have come.
 * @property {(stream: "stdout" | "stderr", text: string) => void} [onOutput] Told each line that Python prints; the
 *   console unless given.
 * @property {boolean} [keepImage] Whether, some seconds after the first start, images of a fresh Python and engine (70 MB with
 *   their files) are made in another worker and kept in the page's storage, so that the next starts are short; they are
 *   unless false.
 */

/**
 * Start Python with edge-infer in a worker of its own. Its engines are started before any code runs, so that
 * `edge_infer.load(...)` is synchronous there.
 *
 * @param {PythonOptions} [options]
 * @returns {Promise<PythonWorker>}
 * @throws {InferError} A file is missing, or of another version than this package is tested with.
 */
export async function loadPython(options = {}) {
  const { threads, engines = ["ort"], root, wheel, onProgress, onOutput = toConsole, keepImage = true } = options;
  const place = rootOf(root);
  const worker = new WorkerClient("edge-infer python", { onOutput, script: "python-worker.js", root: place });
  const address = wheel === null ? "" : new URL(wheel ?? `wheels/edge_infer-${VERSION}-page.tar`, place).href;
  try {
    const settings = { root: place, threads };
    const report = await worker.request({ kind: "python", settings, wheel: address, engines }, { onProgress });
    if (keepImage && !report.isFromImage) {
      // Starting a second Python takes a processor for seconds: not while the page makes use of its first one.
      const later = () => worker.ended || keepPythonImage({ root: place }).catch((error) => console.debug(`edge-infer: ${error}`));
      setTimeout(() => (globalThis.requestIdleCallback ?? setTimeout)(later), IMAGE_DELAY_MS);
    }
    return new PythonWorker(worker, report);
  } catch (error) {
    worker.close();
    throw error;
  }
}

/**
 * Keep an image of a fresh Python now; `loadPython` does it by itself, later.
 *
 * @param {{root?: URL | string}} [options]
 * @returns {Promise<boolean>} Whether one is kept now: not where the page has no storage, or no room.
 */
export async function keepPythonImage({ root } = {}) {
  const place = rootOf(root);
  const worker = new WorkerClient("edge-infer python image", { script: "python-worker.js", root: place });
  try {
    return await worker.request({ kind: "image", root: place });
  } finally {
    worker.close();
  }
}

/** @param {"stdout" | "stderr"} stream @param {string} text */
function toConsole(stream, text) {
  (stream === "stdout" ? console.log : console.warn)(text);
}
