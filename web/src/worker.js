/** The worker's end: it holds the engine, its sessions, or Python, and answers one request after the other. */

import { fetchBundle } from "./bundle.js";
import { startEngine } from "./engines/open.js";
import { startPython } from "./engines/pyodide.js";
import { InferError } from "./errors.js";
import { transferable } from "./protocol.js";
import { openStore } from "./store.js";

/** @typedef {import("./protocol.js").Request} Request */
/** @typedef {import("./protocol.js").Reply} Reply */
/** @typedef {import("./engines/open.js").AnySession} AnySession */
/** @typedef {import("./engines/open.js").Opener} Opener */

/** @type {Map<number, {session: AnySession, opener: Opener}>} */
const sessions = new Map();
let nextSession = 1;
/** @type {import("./engines/pyodide.js").Python | undefined} */
let python;
/** @type {Promise<import("./store.js").Store> | undefined} */
let store;
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
  if (request.kind === "open") aborts.set(request.id, new AbortController());
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
    case "kept":
      return [await (await ownStore()).list(), []];
    case "clear":
      await (await ownStore()).clear();
      return [null, []];
    case "run": {
      const found = sessions.get(request.session);
      if (!found) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
      const before = found.opener.placement().fallbacks.length;
      const results = await found.session.run(request.inputs, { outputs: request.outputs });
      const placed = found.opener.placement();
      return [{ results, placed: placed.fallbacks.length > before ? placed : undefined }, transferable(results)];
    }
    case "close":
      await sessions.get(request.session)?.session.close();
      sessions.delete(request.session);
      return [null, []];
    case "python": {
      const onOutput = (/** @type {"stdout" | "stderr"} */ stream, /** @type {string} */ text) =>
        post({ kind: "output", stream, text });
      const { settings, wheel, engines } = request;
      const begun = await startPython(settings, wheel, engines, { onProgress, onOutput });
      python = begun.python;
      const [engine] = begun.engines;
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

/**
 * @param {import("./protocol.js").OpenRequest} request
 * @param {AbortSignal | undefined} signal
 * @param {import("./download.js").OnProgress} onProgress
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function open({ url, variant: wanted, backend, device = "auto", keep, settings }, signal, onProgress) {
  const kept = keep ? await ownStore() : undefined;
  const known = kept?.notices.length ?? 0;
  /** @type {Promise<Opener> | undefined} */
  let starting;
  const onChosen = (/** @type {import("./bundle.js").Variant} */ variant) => {
    starting = startEngine(variant, device, settings, onProgress);
    starting.catch(() => {}); // told below, where it is awaited
  };
  const precisions = device === "webgpu" ? await (await import("./engines/ort-webgpu.js")).preferredPrecisions() : undefined;
  const bundle = await fetchBundle(url, { variant: wanted, backend, precisions, onChosen, onProgress, signal, store: kept });
  const opener = await /** @type {Promise<Opener>} */ (starting);
  signal?.throwIfAborted();
  const { name, revision, variant, model, labels } = bundle;
  const session = await opener.open(model, variant);
  if (signal?.aborted) await session.close();
  signal?.throwIfAborted();
  const number = nextSession++;
  sessions.set(number, { session, opener });
  const placed = opener.placement();
  const report = {
    model: `${name}@${revision.slice(0, 6)}`,
    variant: variant.id,
    engine: placed.name,
    engineVersion: placed.version,
    device: placed.device,
    threads: placed.threads,
    fallbacks: placed.fallbacks,
    storage: kept?.kind ?? /** @type {const} */ ("none"),
    fromStorage: bundle.isKept,
    offline: bundle.isOffline,
    notices: kept?.notices.filter((_, i) => i >= known || kept.kind === "memory") ?? [],
    ...place(),
    ...traffic(),
  };
  return { session: number, inputs: [...session.inputs], outputs: [...session.outputs], labels, report };
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
