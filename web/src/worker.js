/** The worker's end of sessions: it holds the engines and the models, and answers one request after the other. */

import { fetchBundle } from "./bundle.js";
import { startEngine } from "./engines/open.js";
import { InferError } from "./errors.js";
import { transferable } from "./protocol.js";
import { openStore } from "./store.js";
import { bundleOfFiles } from "./sync/files.js";
import { requireGolden } from "./sync/golden.js";
import { StoreModel } from "./sync/pull.js";
import { answerRequests, place, resources, traffic, unknownRequest } from "./worker-loop.js";

/** @typedef {import("./protocol.js").Request} Request */
/** @typedef {import("./engines/open.js").AnySession} AnySession */
/** @typedef {import("./engines/open.js").Opener} Opener */

/** @type {Map<number, {session: AnySession, opener: Opener, wanted: import("./protocol.js").OpenRequest}>} */
const sessions = new Map();
let nextSession = 1;
/** @type {Promise<import("./store.js").Store> | undefined} */
let store;
/** The models of signed stores that this worker brings up to date. @type {Map<string, StoreModel>} */
const storeModels = new Map();
/**
 * @param {Request} request
 * @param {AbortSignal} signal
 * @param {import("./download.js").OnProgress} onProgress
 * @returns {Promise<import("./worker-loop.js").Answered>}
 */
async function handle(request, signal, onProgress) {
  switch (request.kind) {
    case "open":
      return [await open(request, signal, onProgress), []];
    case "pull": {
      const options = { ...request.options, onProgress, signal };
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
      const found = sessions.get(request.session);
      if (!found) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
      const before = found.opener.placement().fallbacks.length;
      const options = { outputs: request.outputs, spare: transferable(request.inputs) };
      const results = await found.session.run(request.inputs, options);
      const placed = found.opener.placement();
      return [{ results, placed: placed.fallbacks.length > before ? placed : undefined }, transferable(results)];
    }
    case "close":
      await sessions.get(request.session)?.session.close();
      sessions.delete(request.session);
      return [null, []];
    case "resources":
      return [resources(), []];
    default:
      throw unknownRequest(request);
  }
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
 * @param {AbortSignal} signal
 * @param {import("./download.js").OnProgress} onProgress
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function open(request, signal, onProgress) {
  const { url, variant: wanted, keep, files, selfTest } = request;
  const kept = keep ? await ownStore() : undefined;
  const known = kept?.notices.length ?? 0;
  const { choosing, started: engineStarted } = await engineFor(request, wanted, onProgress);
  const bundle = files
    ? await bundleOfFiles(files, choosing)
    : await fetchBundle(url, { ...choosing, onProgress, signal, store: kept });
  const opener = await engineStarted();
  signal?.throwIfAborted();
  const notices = kept?.notices.filter((_, i) => i >= known || kept.kind === "memory") ?? [];
  const facts = { selfTest, storage: kept?.kind ?? /** @type {const} */ ("none"), notices, signal };
  return start(opener, bundle, nextSession++, { wanted: request, ...facts });
}

/**
 * Prepare the choice of a variant: its engine starts when it is chosen, while its file is on the way.
 *
 * @param {import("./protocol.js").OpenRequest} request What was asked for.
 * @param {string} [variant] The id of the variant to take.
 * @param {import("./download.js").OnProgress} [onProgress]
 * @returns {Promise<{choosing: import("./bundle.js").FetchOptions, started: () => Promise<Opener>}>}
 */
async function engineFor({ backend, device = "auto", settings }, variant, onProgress) {
  /** @type {Promise<Opener> | undefined} */
  let starting;
  const onChosen = (/** @type {import("./bundle.js").Variant} */ chosen) => {
    starting = startEngine(chosen, device, settings, onProgress);
    starting.catch(() => {}); // told where it is awaited
  };
  const precisions = device === "webgpu" ? await (await import("./engines/ort-webgpu.js")).preferredPrecisions() : undefined;
  return { choosing: { variant, backend, precisions, onChosen }, started: () => /** @type {Promise<Opener>} */ (starting) };
}

/**
 * Run other weights from now on, under the same number, on the engine and the device that were asked for at first.
 * Where they fail, the old ones stay.
 *
 * @param {import("./protocol.js").SwapRequest} request
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function swap({ session: number, files, variant, selfTest }) {
  const old = sessions.get(number);
  if (!old) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
  const { choosing, started: engineStarted } = await engineFor(old.wanted, variant);
  const bundle = await bundleOfFiles(files, choosing);
  const opener = await engineStarted();
  const facts = { wanted: old.wanted, selfTest, storage: (await ownStore()).kind, notices: [] };
  const opened = await start(opener, bundle, number, facts);
  await old.session.close();
  return opened;
}

/**
 * Make a session of a bundle, and test it.
 *
 * @param {Opener} opener
 * @param {import("./bundle.js").FetchedBundle & {examples?: import("./sync/golden.js").Example[]}} bundle
 * @param {number} number
 * @param {{wanted: import("./protocol.js").OpenRequest, selfTest?: boolean, notices: string[], signal?: AbortSignal,
 *   storage: import("./places.js").PlaceKind | "none"}} facts
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function start(opener, bundle, number, { wanted, selfTest, storage, notices, signal }) {
  const { name, revision, variant, model, labels, examples } = bundle;
  const session = await opener.open(model, variant);
  try {
    if (selfTest && examples?.length) await requireGolden(session, examples, variant.precision);
    signal?.throwIfAborted();
  } catch (error) {
    await session.close();
    throw error;
  }
  sessions.set(number, { session, opener, wanted });
  const placed = opener.placement();
  const report = {
    model: `${name}@${revision.slice(0, 6)}`,
    variant: variant.id,
    engine: placed.name,
    engineVersion: placed.version,
    device: placed.device,
    threads: placed.threads,
    fallbacks: placed.fallbacks,
    storage,
    fromStorage: bundle.isKept,
    offline: bundle.isOffline,
    notices,
    ...place(),
    ...traffic(),
  };
  return { session: number, inputs: [...session.inputs], outputs: [...session.outputs], labels, report };
}

answerRequests(handle);
