/** Load a model: a bundle, a bare file, or the newest version in a signed store, with a server to fall back to. */

import { EdgeInferError } from "../errors.js";
import { rootOf } from "../fetch/root.js";
import { STORE, addressOf } from "./address.js";
import { Session, buffersOf, enter, leave, withUpdate } from "./session.js";

/** @typedef {import("../bundle/measured.js").EngineName} EngineName */
/** @typedef {import("../fetch/download.js").OnProgress} OnProgress */
/** @typedef {import("./live.js").LiveModel} LiveModel */

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
/** @typedef {OwnOptions & Omit<import("./live.js").StoreOptions, "fallback">} SessionOptions Those of a store are for `edge+` addresses. */

/**
 * Load a model.
 *
 * @param {URL | string} url The address of a bundle, of a bare `.onnx`, `.tflite` or compiled `.wasm` file, or, as
 *   `edge+https://HOST/STORE/MODEL` or `edge+/store/MODEL`, of a model of a signed store, whose newest version is loaded
 *   and can be followed.
 * @param {SessionOptions} [options]
 * @returns {Promise<Session>}
 * @throws {EdgeInferError} The bundle is missing or wrong, the engine cannot start here or cannot load the model; the signal's
 *   reason where it is aborted.
 */
export async function load(url, options = {}) {
  const { fallback, latencyBudgetMs, apiKey, signal } = options;
  if (fallback === undefined && latencyBudgetMs !== undefined) {
    throw new EdgeInferError("`latencyBudgetMs` is for a model with a server to fall back to", "input_error", { hint: 'fallback: "http://HOST/v2/models/NAME"' });
  }
  if (fallback === undefined) return loadHere(url, options);
  const { FallbackModel, fallbackOf, mayBeServed, namesServer, openServed } = await import("./fallback.js");
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
 * @param {import("./fallback.js").FallbackModel} [fallback]
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
  const open = (/** @type {Partial<import("./protocol.js").OpenRequest>} */ more, /** @type {Transferable[]} */ moved = []) =>
    used.request({ kind: "open", url: "", variant, backend, device, strict, keep, settings, latencyBudgetMs, ...more }, { onProgress, signal, transfer: moved });
  try {
    if (!isOfStore) {
      const asked = { variant, backend, device, threads, apiKey, onProgress, signal };
      if (isTuned && keep) await (await import("./tune.js")).measureOnce(used, address, settings.root, asked);
      return new Session(used, await open({ url: address, apiKey, selfTest, refusesPairs }), { fallback });
    }
    live = new (await import("./live.js")).LiveModel(address, settings.root, ofStore);
    try {
      const { taken, update } = await live.take({ mayBeOld: true, onProgress, signal }, ({ files, isNew, isOffline }) =>
        open({ files, selfTest, trial: isNew ? address : "" }, buffersOf(files)).then((opened) => ({ ...opened, report: { ...opened.report, offline: isOffline } })),
      );
      return new Session(used, withUpdate(taken, update), { live, variant, fallback });
    } catch (error) {
      const { fallback: plain } = ofStore;
      if (!(error instanceof EdgeInferError && error.code === "unsupported" && plain)) throw error;
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
