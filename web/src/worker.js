/** The worker's end: it holds the engine, its sessions, or Python, and answers one request after the other. */

import { fetchBundle } from "./bundle.js";
import { sharedOrtEngine } from "./engines/ort.js";
import { startPython } from "./engines/pyodide.js";
import { InferError } from "./errors.js";
import { transferable } from "./protocol.js";
import { openStore } from "./store.js";
import { bundleOfFiles } from "./sync/files.js";
import { requireGolden } from "./sync/golden.js";
import { StoreModel } from "./sync/pull.js";

/** @typedef {import("./protocol.js").Request} Request */
/** @typedef {import("./protocol.js").Reply} Reply */
/** @typedef {import("./engines/ort-session.js").OrtSession} OrtSession */

/** @type {Map<number, OrtSession>} */
const sessions = new Map();
let nextSession = 1;
/** @type {import("./engines/pyodide.js").Python | undefined} */
let python;
/** @type {Promise<import("./store.js").Store> | undefined} */
let store;
/** The models of signed stores that this worker brings up to date. @type {Map<string, StoreModel>} */
const storeModels = new Map();
/** What gives up a request that is worked on or waits. @type {Map<number, AbortController>} */
const aborts = new Map();
// Requests wait for the one before: a load and a run of the same engine must not interleave.
let last = Promise.resolve();

/** @param {Reply} reply @param {Transferable[]} [moved] */
function post(reply, moved = []) {
  self.postMessage(reply, { transfer: moved });
}

self.onmessage = ({ data: request }) => {
  if (request.kind === "abort") {
    aborts.get(request.target)?.abort();
    return;
  }
  if (request.kind === "open" || request.kind === "pull") aborts.set(request.id, new AbortController());
  last = last.then(() => respond(request));
};

/** @param {Request} request */
async function respond(request) {
  const { id } = request;
  try {
    const [value, moved] = await handle(request);
    post({ kind: "result", id, value }, moved);
  } catch (error) {
    post({ kind: "error", id, error: InferError.describe(error) });
  } finally {
    aborts.delete(id);
  }
}

/**
 * @param {Request} request
 * @returns {Promise<[unknown, Transferable[]]>} The answer, and the buffers to move with it.
 */
async function handle(request) {
  const onProgress = (/** @type {import("./download.js").Progress} */ progress) =>
    post({ kind: "progress", id: request.id, progress });
  switch (request.kind) {
    case "open":
      return [await open(request, aborts.get(request.id)?.signal, onProgress), []];
    case "pull": {
      const options = { ...request.options, onProgress, signal: aborts.get(request.id)?.signal };
      const pulled = await (await storeModel(request.address)).pull(options);
      return [pulled, pulled.files.map(([, bytes]) => bytes.buffer)];
    }
    case "settle":
      await (await storeModel(request.address)).settle(request.result);
      return [null, []];
    case "swap":
      return [await swap(request), []];
    case "kept":
      return [await (await ownStore()).list(), []];
    case "clear":
      await (await ownStore()).clear();
      return [null, []];
    case "run": {
      const session = sessions.get(request.session);
      if (!session) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
      const results = /** @type {Record<string, import("./tensors.js").Tensor>} */ (
        session.run(request.inputs, { outputs: request.outputs })
      );
      return [results, transferable(results)];
    }
    case "close":
      sessions.get(request.session)?.close();
      sessions.delete(request.session);
      return [null, []];
    case "python": {
      const onOutput = (/** @type {"stdout" | "stderr"} */ stream, /** @type {string} */ text) =>
        post({ kind: "output", stream, text });
      python = await startPython(request.settings, request.wheel, { onProgress, onOutput });
      const engine = await sharedOrtEngine();
      return [{ engine: engine.name, engineVersion: engine.version, threads: engine.threads, ...place(), ...traffic() }, []];
    }
    case "execute":
      return [await started().execute(request.code, request.names), []];
    case "call":
      return [await started().call(request.module, request.name, request.values), []];
    case "traffic":
      return [traffic(), []];
    case "write":
      return [started().write(request.path, request.data), []];
    default:
      throw new InferError(`The worker does not know the request \`${JSON.stringify(request)}\``, "input_error");
  }
}

function started() {
  if (!python) throw new InferError("Python has not started", "input_error", { hint: "await startPython()" });
  return python;
}

function ownStore() {
  store ??= openStore();
  return store;
}

/** @param {string} address */
async function storeModel(address) {
  const known = storeModels.get(address) ?? new StoreModel(address, await ownStore());
  storeModels.set(address, known);
  return known;
}

/**
 * @param {import("./protocol.js").OpenRequest} request
 * @param {AbortSignal | undefined} signal
 * @param {import("./download.js").OnProgress} onProgress
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function open({ url, variant: wanted, keep, settings, files, selfTest }, signal, onProgress) {
  const base = new URL("vendor/onnxruntime-web/", settings.root);
  const kept = keep ? await ownStore() : undefined;
  const known = kept?.notices.length ?? 0;
  const [engine, bundle] = await Promise.all([
    sharedOrtEngine({ base, threads: settings.threads, onProgress }),
    files ? bundleOfFiles(files, wanted) : fetchBundle(url, { variant: wanted, onProgress, signal, store: kept }),
  ]);
  signal?.throwIfAborted();
  const notices = kept?.notices.filter((_, i) => i >= known || kept.kind === "memory") ?? [];
  return start(engine, bundle, nextSession++, { selfTest, storage: kept?.kind ?? /** @type {const} */ ("none"), notices });
}

/**
 * Run other weights from now on, under the same number. Where they fail, the old ones stay.
 *
 * @param {import("./protocol.js").SwapRequest} request
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function swap({ session: number, files, variant, selfTest }) {
  const old = sessions.get(number);
  if (!old) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
  const bundle = await bundleOfFiles(files, variant);
  const opened = start(await sharedOrtEngine(), bundle, number, { selfTest, storage: (await ownStore()).kind, notices: [] });
  old.close();
  return opened;
}

/**
 * Make a session of a bundle, and test it.
 *
 * @param {import("./engines/ort.js").OrtEngine} engine
 * @param {import("./bundle.js").FetchedBundle & {examples?: import("./sync/golden.js").Example[]}} bundle
 * @param {number} number
 * @param {{selfTest?: boolean, storage: import("./places.js").PlaceKind | "none", notices: string[]}} facts
 * @returns {import("./protocol.js").Opened}
 */
function start(engine, bundle, number, { selfTest, storage, notices }) {
  const { name, revision, variant, model, labels, examples } = bundle;
  const session = engine.createSession(model, { config: variant.options?.["ort-web"] });
  try {
    if (selfTest && examples?.length) requireGolden(session, examples, variant.precision);
  } catch (error) {
    session.close();
    throw error;
  }
  sessions.set(number, session);
  const report = {
    model: `${name}@${revision.slice(0, 6)}`,
    variant: variant.id,
    engine: engine.name,
    engineVersion: engine.version,
    device: "wasm",
    threads: engine.threads,
    storage,
    fromStorage: bundle.isKept,
    offline: bundle.isOffline,
    notices,
    ...place(),
    ...traffic(),
  };
  return { session: number, inputs: session.inputs, outputs: session.outputs, labels, report };
}

function place() {
  return { isolated: globalThis.crossOriginIsolated === true };
}

/** @returns {import("./protocol.js").Traffic} */
function traffic() {
  const entries = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType("resource"));
  const sum = (/** @type {(entry: PerformanceResourceTiming) => number} */ of) => entries.reduce((all, entry) => all + of(entry), 0);
  return { bytesFetched: sum((entry) => entry.transferSize), bytesLoaded: sum((entry) => entry.decodedBodySize) };
}
