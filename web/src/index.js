/**
 * Run a bundle in a page: `load` with JavaScript only, `loadPython` with Python.
 *
 *     import { load } from "/src/index.js";
 *     const session = await load("/models/digits");
 *     const { logits } = await session.run({ image: new Float32Array(64) });
 *
 * Engine and Python run in module workers; nothing happens at import.
 */

import { WorkerClient } from "./client.js";
import { InferError } from "./errors.js";
import { transferable } from "./protocol.js";
import { PythonWorker } from "./python.js";
import { arrayOver, checkInput } from "./tensors.js";

export { InferError };

/** @typedef {import("./protocol.js").Opened} Opened */
/** @typedef {import("./protocol.js").Report} Report */
/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./download.js").OnProgress} OnProgress */

/** The version of this package, and of the wheel that `loadPython` installs. */
export const VERSION = "0.1.0";

/** @typedef {import("./sync/live.js").Update} Update */
/** @typedef {import("./sync/live.js").LiveModel} LiveModel */

/**
 * @typedef {object} OwnOptions
 * @property {string} [variant] The id of the variant to load; chosen unless given.
 * @property {"ort" | "litert"} [backend] The engine: onnxruntime-web for ONNX variants, LiteRT.js for TFLite ones. By
 *   the variant unless given; ONNX comes first.
 * @property {"auto" | "wasm" | "webgpu"} [device] What to run on; `auto` is `wasm`. Where `webgpu` is not to be had, or
 *   fails later, the session goes on with wasm: the console warns, and `report().fallbacks` has the reason.
 * @property {number} [threads] How many threads an operator may use; see `startOrtEngine`. The first session decides.
 * @property {URL | string} [root] The URL under which `src/` and `vendor/` lie; that of this module unless given.
 * @property {OnProgress} [onProgress] Told how far the downloads have come.
 * @property {AbortSignal} [signal] Gives up the load; what has arrived until then is kept.
 * @property {boolean} [keep] Whether the model is kept in the page's storage for the next visit; it is unless false.
 * @property {string} [apiKey] What the bundle's server asks for, where it has tenants. Whoever may read the page may read it.
 * @property {boolean} [selfTest] Whether the model has to give its golden outputs before it is handed over.
 * @property {boolean} [tune] Whether the ways to run the model are measured first, where that was not done in this browser.
 */
/** @typedef {OwnOptions & import("./sync/live.js").StoreOptions} SessionOptions Those of a store are for `edge+` addresses. */

/** What an address of STORE/MODEL begins with. */
const STORE = "edge+";
// When the image of Python is made: the first answers of a page come before it.
const IMAGE_DELAY_MS = 5000;

// All sessions of a page share one worker and its engine, which is stopped when the last of them is disposed of.
/** @type {WorkerClient | undefined} */
let client;
let users = 0;

/**
 * Load a model.
 *
 * @param {URL | string} url The address of a bundle, of a bare `.onnx` or `.tflite` file, or, as
 *   `edge+https://HOST/STORE/MODEL` or `edge+/store/MODEL`, of a model of a signed store, whose newest version is loaded
 *   and can be followed.
 * @param {SessionOptions} [options]
 * @returns {Promise<Session>}
 * @throws {InferError} The bundle is missing or wrong, the engine cannot start here or cannot load the model; the signal's
 *   reason where it is aborted.
 */
export async function load(url, options = {}) {
  const { variant, backend, device, threads, root, onProgress, signal, keep = true, apiKey, selfTest, tune: isTuned, ...ofStore } = options;
  const text = String(url);
  const isOfStore = text.startsWith(STORE);
  const address = new URL(isOfStore ? text.slice(STORE.length) : text, globalThis.location?.href).href;
  const settings = { root: rootOf(root), threads };
  const used = enter();
  /** @type {LiveModel | undefined} */
  let live;
  const open = (/** @type {Partial<import("./protocol.js").OpenRequest>} */ more, /** @type {Transferable[]} */ moved = []) =>
    used.request({ kind: "open", url: "", variant, backend, device, keep, settings, ...more }, { onProgress, signal, transfer: moved });
  try {
    if (!isOfStore) {
      const asked = { variant, backend, device, threads, apiKey, onProgress, signal };
      if (isTuned && keep) await (await import("./tune.js")).measureOnce(used, address, settings.root, asked);
      return new Session(used, await open({ url: address, apiKey, selfTest }));
    }
    live = new (await import("./sync/live.js")).LiveModel(address, settings.root, ofStore);
    try {
      const { taken, update } = await live.take({ mayBeOld: true, onProgress, signal }, ({ files, isNew, isOffline }) =>
        open({ files, selfTest, trial: isNew ? address : "" }, buffersOf(files)).then((opened) => ({ ...opened, report: { ...opened.report, offline: isOffline } })),
      );
      return new Session(used, withUpdate(taken, update), live, variant);
    } catch (error) {
      const { fallback } = ofStore;
      if (!(error instanceof InferError && error.code === "unsupported" && fallback)) throw error;
      live.close();
      const opened = await open({ url: new URL(fallback, globalThis.location?.href).href });
      const notices = [...opened.report.notices, `${error.message}; the plain bundle ${fallback} is used, unsigned`];
      return new Session(used, { ...opened, report: { ...opened.report, notices } });
    }
  } catch (error) {
    live?.close();
    leave(used);
    throw error;
  }
}

/**
 * Measure the ways to run a bundle in this browser, on its golden examples, and remember them: from then on `load`
 * takes the fastest of those that it is asked for.
 *
 * @param {URL | string} url The address of a bundle.
 * @param {import("./tune.js").TuneOptions} [options]
 * @returns {Promise<import("./tune.js").Tuning>}
 * @throws {InferError} The bundle is missing or wrong, or no way works here; the signal's reason where it is aborted.
 */
export async function tune(url, options = {}) {
  const { measure } = await import("./tune.js");
  return measure(new URL(url, globalThis.location?.href).href, rootOf(options.root), options);
}

/** @param {Opened} opened @param {Update} update @returns {Opened} */
function withUpdate(opened, update) {
  const notices = update.note ? [...opened.report.notices, update.note] : opened.report.notices;
  return { ...opened, report: { ...opened.report, notices, update } };
}

/** @param {import("./protocol.js").Files} files @returns {ArrayBuffer[]} */
function buffersOf(files) {
  return files.map(([, bytes]) => bytes.buffer);
}

/** @returns {Promise<import("./store.js").Kept[]>} The models in this page's storage, the one used last first. */
export function keptModels() {
  return withWorker((worker) => worker.request({ kind: "kept" }));
}

/** Remove all models from this page's storage. Sessions that are open go on. */
export async function clearModels() {
  await withWorker((worker) => worker.request({ kind: "clear" }));
}

/**
 * @template T
 * @param {(worker: WorkerClient) => Promise<T>} work
 * @returns {Promise<T>}
 */
async function withWorker(work) {
  const used = enter();
  try {
    return await work(used);
  } finally {
    leave(used);
  }
}

/**
 * Make this page work without its server from the next visit on: a service worker keeps the page, its scripts and styles,
 * and what its sessions and its Python have loaded until now. Models are kept by their sessions. Call it when all is loaded.
 *
 * @param {import("./offline.js").OfflineOptions & {root?: URL | string}} [options]
 * @returns {Promise<import("./offline.js").Kept>} `isKept` is false, and `why` says why, where the browser cannot.
 * @throws {InferError} `unsupported`: the service worker may not serve this page; `fetch_error` or `integrity_error`: a file is
 *   gone, or not the one of this build; what was kept before stays.
 */
export async function keepOffline({ root, ...options } = {}) {
  return (await import("./offline.js")).keepOffline(options, rootOf(root));
}

/** Undo `keepOffline`. Models stay until `clearModels`. */
export async function forgetOffline() {
  await (await import("./offline.js")).forgetOffline();
}

/** @returns {WorkerClient} The worker of the page's sessions: another one after one that failed. */
function enter() {
  if (!client || client.ended) client = new WorkerClient("edge-infer");
  users++;
  return client;
}

/** @param {WorkerClient} used */
function leave(used) {
  users--;
  if (users > 0 || used !== client) return;
  client.close();
  client = undefined;
}

/** A model that is ready to run; made by `load`. */
export class Session {
  /** @type {WorkerClient | undefined} */
  #client;
  /** @type {Opened} */
  #opened;
  /** @type {LiveModel | undefined} */
  #live;
  #variant;
  /** Updates come one after the other. @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** What ends the watching. @type {Set<() => void>} */
  #watches = new Set();

  /**
   * @param {WorkerClient} worker
   * @param {Opened} opened
   * @param {LiveModel} [live] Of a model of a signed store.
   * @param {string} [variant]
   */
  constructor(worker, opened, live, variant) {
    this.#client = worker;
    this.#opened = opened;
    this.#live = live;
    this.#variant = variant;
  }

  /** @returns {readonly TensorSpec[]} The specs of the inputs. */
  get inputs() {
    return this.#opened.inputs;
  }

  /** @returns {readonly TensorSpec[]} The specs of the outputs. */
  get outputs() {
    return this.#opened.outputs;
  }

  /** @returns {readonly string[]} The class names that the bundle carries. */
  get labels() {
    return this.#opened.labels;
  }

  /** @returns {Report} What this session really runs on. */
  report() {
    return this.#opened.report;
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} inputs A value for each input: a typed array, `{data, dtype, shape}`, a number or
   *   text, or nested arrays of them. Nothing is cast, and typed arrays are copied.
   * @param {object} [options]
   * @param {string[]} [options.outputs] The outputs to compute; all unless given.
   * @param {AbortSignal} [options.signal] Gives up waiting: the promise is rejected at once. What the engine computes
   *   already it computes to its end; what waits behind that is not begun.
   * @returns {Promise<Record<string, Tensor>>}
   * @throws {InferError} `input_error` where an input does not fit, `execution_error` where the engine fails; the
   *   signal's reason where it is aborted.
   */
  async run(inputs, { outputs, signal } = {}) {
    if (!this.#client) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
    /** @type {Record<string, Tensor>} */
    const checked = {};
    for (const [name, value] of Object.entries(inputs)) {
      const spec = this.inputs.find((one) => one.name === name);
      if (!spec) {
        const known = this.inputs.map((one) => `\`${one.name}\``).join(", ");
        throw new InferError(`Input \`${name}\` is not known; choose from ${known}`, "input_error", { details: { input: name } });
      }
      const { bytes, strings, shape } = checkInput(spec, value);
      const data = bytes ? arrayOver(spec.dtype, bytes.slice()) : (strings ?? []);
      checked[name] = { data, dtype: spec.dtype, shape };
    }
    const { session } = this.#opened;
    const request = /** @type {const} */ ({ kind: "run", session, inputs: checked, outputs });
    const { results, placed } = await this.#client.request(request, { transfer: transferable(checked), signal });
    if (placed) {
      const { device, threads, fallbacks } = placed;
      this.#opened.report = { ...this.#opened.report, device, threads, fallbacks };
    }
    return results;
  }

  /**
   * Bring the newest version of the store, try it on its golden examples, and run it from the next call on. Calls go on
   * meanwhile, and one that is under way ends on the weights that it began with.
   *
   * @param {import("./sync/live.js").Asking} [asking]
   * @returns {Promise<Update>}
   * @throws {InferError} It could not be fetched, proven or run; the old version runs on.
   */
  update(asking = {}) {
    const result = this.#last.then(() => this.#update(asking));
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {import("./sync/live.js").Asking} asking */
  async #update(asking) {
    const [used, live] = [this.#client, this.#live];
    if (!live) throw new InferError("This session is of no store", "input_error", { hint: 'load("edge+/store/MODEL")' });
    if (!used) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
    const { session } = this.#opened;
    const { taken, update } = await live.take({ ...asking, mayBeOld: false }, ({ files, isNew }) =>
      used.request({ kind: "swap", session, files, variant: this.#variant, trial: isNew ? live.address : "" }, { transfer: buffersOf(files) }),
    );
    if (taken) this.#opened = withUpdate(taken, update);
    return update;
  }

  /**
   * Update again and again until it is ended or the session is disposed of.
   *
   * @param {import("./sync/follow.js").FollowOptions} [options]
   * @returns {() => void} Ends it.
   */
  watch(options = {}) {
    if (!this.#live) throw new InferError("This session is of no store", "input_error", { hint: 'load("edge+/store/MODEL")' });
    const end = this.#live.follow(() => this.update(), options);
    this.#watches.add(end);
    return end;
  }

  /**
   * Give back the model's memory, and the engine's with the last session. Runs that were asked for before it are
   * answered first. A second call does nothing.
   */
  async dispose() {
    const used = this.#client;
    this.#client = undefined;
    if (!used) return;
    for (const end of this.#watches) end();
    this.#live?.close();
    if (!used.ended) await used.request({ kind: "close", session: this.#opened.session });
    leave(used);
  }
}

/**
 * @typedef {object} PythonOptions
 * @property {number} [threads] How many threads an operator may use; see `startOrtEngine`.
 * @property {("ort" | "litert")[]} [engines] The engines to start before any code runs: `ort`, for ONNX, unless given;
 *   `litert` is for TFLite. The first one is told by `report()`.
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
  const worker = new WorkerClient("edge-infer python", onOutput);
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
  const worker = new WorkerClient("edge-infer python image", () => {});
  try {
    return await worker.request({ kind: "image", root: rootOf(root) });
  } finally {
    worker.close();
  }
}

/** @param {"stdout" | "stderr"} stream @param {string} text */
function toConsole(stream, text) {
  (stream === "stdout" ? console.log : console.warn)(text);
}

/** @param {URL | string} [root] */
function rootOf(root) {
  return new URL(root ?? "../", root === undefined ? import.meta.url : globalThis.location?.href).href;
}
