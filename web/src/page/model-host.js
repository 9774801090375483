/** Hold engines and models, and answer what sessions ask: in a worker, or on the thread that asks. */

import { fetchBare, fetchBundle, openBundle } from "../bundle/bundle.js";
import { decide, runnable } from "../bundle/selection.js";
import { startEngine } from "../engines/open.js";
import { EdgeInferError } from "../errors.js";
import { fastest, recallMeasured, rememberMeasured, wrongVariants } from "../bundle/measured.js";
import { transferable } from "./protocol.js";
import { openStore } from "../cache/store.js";
import { madeUpInputs } from "../tensors.js";
import { place, traffic, unknownRequest } from "./worker-loop.js";

/** @typedef {import("./protocol.js").Request} Request */
/** @typedef {import("../engines/open.js").AnySession} AnySession */
/** @typedef {import("../engines/open.js").Opener} Opener */

/** @typedef {import("../bundle/golden.js").Example} Example */
/** @typedef {import("../bundle/bundle.js").Reader} Reader */
/** @type {Map<number, {session: AnySession, opener: Opener, wanted: import("./protocol.js").OpenRequest, examples?: Example[], read: Reader, parent?: number}>} */
const sessions = new Map();
let nextSession = 1;
/** @type {Promise<import("../cache/store.js").Store> | undefined} */
let store;
/** The models of signed stores that this worker brings up to date. @type {Map<string, import("../sync/pull.js").StoreModel>} */
const storeModels = new Map();
/**
 * @param {Request} request
 * @param {AbortSignal} signal
 * @param {import("../fetch/download.js").OnProgress} onProgress
 * @returns {Promise<import("./worker-loop.js").Answered>}
 */
export async function handle(request, signal, onProgress) {
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
    case "survey": {
      const { manifest, revision } = await openBundle(request.url, { signal, apiKey: request.apiKey, store: await ownStore() });
      const sizes = new Map(manifest.files.map(({ path, size }) => [path, size]));
      const found = runnable(manifest, request.variant, request.backend);
      const variants = found.map(({ id, format, file }) => ({ id, format, bytes: sizes.get(file) ?? 0 }));
      const isMeasured = fastest((await recallMeasured(await ownStore(), revision)).rows, request) !== undefined;
      const rule = decide(manifest, undefined, request).chosen.id;
      return [{ model: `${manifest.name}@${revision.slice(0, 6)}`, revision, variants, rule, isMeasured }, []];
    }
    case "check": {
      const { url, settings, keep, ...asked } = request;
      const { preflight } = await import("./preflight.js");
      return [await preflight(url, settings.root, { ...asked, threads: settings.threads }, keep ? await ownStore() : undefined, signal), []];
    }
    case "time":
      return [await time(sessionOf(request.session), request.runs), []];
    case "remember":
      await rememberMeasured(await ownStore(), request.revision, request.rows, request.failed);
      return [null, []];
    case "run": {
      const found = sessionOf(request.session);
      const before = found.opener.placement().fallbacks.length;
      const options = { outputs: request.outputs, spare: transferable(request.inputs) };
      const results = await found.session.run(request.inputs, options);
      const placed = found.opener.placement();
      return [{ results, placed: placed.fallbacks.length > before ? placed : undefined }, transferable(results)];
    }
    case "read":
      return [await sessionOf(request.session).read(request.path, signal), []];
    case "file": {
      const { url, keep, apiKey } = request;
      const found = await fetchBare(new URL(url), { signal, apiKey, store: keep ? await ownStore() : undefined });
      return [found, [found.bytes.buffer]];
    }
    case "memory": {
      const { session, opener } = sessionOf(request.session);
      return [opener.memory?.(session) ?? null, []];
    }
    case "fork":
      return [fork(request.session), []];
    case "close":
      for (const [number, { session, parent }] of sessions) {
        if (number !== request.session && parent !== request.session) continue;
        sessions.delete(number);
        await session.close();
      }
      return [null, []];
    default:
      throw unknownRequest(request);
  }
}

/** @param {number} number */
function sessionOf(number) {
  const found = sessions.get(number);
  if (!found) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
  return found;
}

/**
 * Make a second session of a model, whose hidden state starts anew and stays from run to run.
 *
 * @param {number} parent
 * @returns {number} Its number.
 */
function fork(parent) {
  const found = sessionOf(parent);
  if (!found.session.keepingState) {
    throw new EdgeInferError("This engine cannot keep the hidden state of a model", "unsupported", { hint: 'load(url, { backend: "litert" })' });
  }
  const number = nextSession++;
  sessions.set(number, { ...found, session: found.session.keepingState(), parent });
  return number;
}

/**
 * @param {{session: AnySession, examples?: Example[]}} opened
 * @param {number} runs
 * @returns {Promise<number>} The milliseconds that one of so many runs takes.
 */
async function time({ session, examples }, runs) {
  const inputs = examples?.length ? examples.map((example) => example.inputs) : [madeUpInputs(session.inputs)];
  const start = performance.now();
  for (let i = 0; i < runs; i++) await session.run(inputs[i % inputs.length], {});
  return (performance.now() - start) / runs;
}

function ownStore() {
  store ??= openStore();
  return store;
}

/** @param {string} address */
async function storeModel(address) {
  const known = storeModels.get(address);
  if (known) return known;
  const { StoreModel } = await import("../sync/pull.js");
  const made = new StoreModel(address, await ownStore());
  storeModels.set(address, made);
  return made;
}

/**
 * @param {import("./protocol.js").OpenRequest} request
 * @param {AbortSignal} signal
 * @param {import("../fetch/download.js").OnProgress} onProgress
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function open(request, signal, onProgress) {
  const { url, variant: wanted, keep, apiKey, files, selfTest, provesItself, trial } = request;
  const kept = keep ? await ownStore() : undefined;
  const known = kept?.notices.length ?? 0;
  const asked = { ...request, threads: request.settings.threads };
  /** @type {import("../bundle/bundle.js").FetchOptions["measured"]} */
  const measured =
    kept &&
    (async (revision) => {
      const { rows, wrong } = await recallMeasured(kept, revision);
      const best = fastest(rows, asked);
      if (request.latencyBudgetMs !== undefined) requireBudget(best, request.latencyBudgetMs);
      return { best, wrong: wrongVariants(wrong, asked) };
    });
  const onManifest = request.refusesPairs ? await refuserOfPairs() : undefined;
  const fetching = { onProgress, signal, apiKey, store: kept, measured, withExamples: selfTest || provesItself, onManifest };
  /** @type {Bring} */
  const bring = (choosing) => (files ? bringFiles(files, choosing) : fetchBundle(url, { ...choosing, ...fetching }));
  const { bundle, opener } = await withEngine(request, wanted, bring, { onProgress, signal });
  const notices = kept?.notices.filter((_, i) => i >= known || kept.kind === "memory") ?? [];
  if (request.latencyBudgetMs !== undefined && !bundle.why.includes("measured")) {
    notices.push("Nothing was measured of this model in this browser: `latencyBudgetMs` is watched while it runs; load(url, { tune: true }) measures first");
  }
  const facts = { selfTest, provesItself: provesItself || Boolean(trial), trial, storage: kept?.kind ?? /** @type {const} */ ("none"), notices, signal };
  return start(opener, bundle, nextSession++, { wanted: request, ...facts });
}

/** @returns {Promise<(manifest: import("../bundle/manifest.js").Manifest) => void>} Refuses a bundle with an encoder and a decoder. */
async function refuserOfPairs() {
  const { isPair } = await import("../generation/pair-kind.js");
  return (manifest) => {
    if (!isPair(manifest)) return;
    throw new EdgeInferError(`\`${manifest.name}\` has an encoder and a decoder`, "unsupported", { hint: "pipeline(url)", details: { isPair: true } });
  };
}

/**
 * @param {import("../bundle/measured.js").Measurement | undefined} best
 * @param {number} budgetMs
 * @throws {EdgeInferError} `backend_unavailable`: even the best way was measured to be slower.
 */
function requireBudget(best, budgetMs) {
  if (!best || best.ms <= budgetMs) return;
  throw new EdgeInferError(`\`${best.variant}\` by ${best.backend} takes ${Number(best.ms.toPrecision(3))} ms here, more than ${budgetMs} ms`, "backend_unavailable", {
    hint: "raise latencyBudgetMs, or leave it out",
    details: { got: best.ms },
  });
}

/**
 * @param {Opener} opener
 * @param {import("./protocol.js").OpenRequest} wanted
 * @throws {EdgeInferError} `backend_unavailable`: strictly asked, and the model runs elsewhere; as `edge_infer.load(strict=True)`.
 */
function requireDevice(opener, { device = "auto", strict }) {
  const { device: used, fallbacks } = opener.placement();
  if (!strict || device === "auto" || device === used) return;
  throw new EdgeInferError(`Device \`${device}\` is not used: ${fallbacks.join("; ") || `runs on ${used}`}`, "backend_unavailable", {
    hint: "leave `strict` out",
    details: { expected: device, got: used },
  });
}

/** @typedef {(choosing: import("../bundle/bundle.js").FetchOptions) => Promise<import("../bundle/bundle.js").FetchedBundle>} Bring */

/**
 * Open a bundle of files; a page that loads by URL never fetches what does it.
 *
 * @param {import("../bundle/in-memory.js").Files} files
 * @param {import("../bundle/bundle.js").FetchOptions} choosing
 */
async function bringFiles(files, choosing) {
  const { bundleOfFiles } = await import("../bundle/in-memory.js");
  return bundleOfFiles(files, choosing);
}

/**
 * Bring a bundle: the engine of its variant starts when that is chosen, while its file is on the way.
 *
 * @param {import("./protocol.js").OpenRequest} request What was asked for.
 * @param {string | undefined} variant The id of the variant to take.
 * @param {Bring} bring
 * @param {{onProgress?: import("../fetch/download.js").OnProgress, signal?: AbortSignal}} [options]
 * @returns {Promise<{bundle: import("../bundle/bundle.js").FetchedBundle, opener: Opener}>}
 */
async function withEngine({ backend, device = "auto", settings }, variant, bring, { onProgress, signal } = {}) {
  /** @type {Promise<Opener> | undefined} */
  let starting;
  /** @type {NonNullable<import("../bundle/bundle.js").FetchOptions["onChosen"]>} */
  const onChosen = (chosen, measured) => {
    const threads = settings.threads ?? measured?.threads;
    starting = startEngine(chosen, measured?.device ?? device, { ...settings, threads }, onProgress);
    starting.catch(() => {}); // told where it is awaited
  };
  const precisions = device === "webgpu" ? await (await import("../engines/ort-webgpu.js")).preferredPrecisions() : undefined;
  const isAccelerated = device === "webgpu" || device === "webnn";
  const formats = isAccelerated ? ["onnx", "tflite", "compiled"] : undefined; // what they run comes first
  /** @type {import("../bundle/bundle.js").FetchedBundle | undefined} */
  let bundle;
  try {
    const readsInPlace = (/** @type {import("../bundle/manifest.js").Variant} */ { format }) => format !== "compiled" && !isAccelerated;
    bundle = await bring({ variant, backend, formats, precisions, onChosen, readsInPlace });
    const opener = await /** @type {Promise<Opener>} */ (/** @type {unknown} */ (starting));
    signal?.throwIfAborted();
    return { bundle, opener };
  } catch (error) {
    if (bundle && !(bundle.model instanceof Uint8Array)) bundle.model.close();
    /** @type {Promise<Opener> | undefined} */ (starting)?.then((opener) => opener.abandon?.(), () => {});
    throw error;
  }
}

/**
 * Run other weights from now on, under the same number, on the engine and the device that were asked for at first.
 * Where they fail, the old ones stay.
 *
 * @param {import("./protocol.js").SwapRequest} request
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function swap({ session: number, files, variant, trial }) {
  const old = sessionOf(number);
  const { bundle, opener } = await withEngine(old.wanted, variant, (choosing) => bringFiles(files, choosing));
  const facts = { wanted: old.wanted, provesItself: Boolean(trial), trial, storage: (await ownStore()).kind, notices: [] };
  const opened = await start(opener, bundle, number, facts);
  await old.session.close();
  return opened;
}

/**
 * @param {Opener} opener
 * @param {import("../bundle/bundle.js").FetchedBundle} bundle Its file is let go.
 */
async function openModel(opener, { model, variant }) {
  if (model instanceof Uint8Array) return opener.open(model, variant);
  try {
    if (opener.openInPlace) return await opener.openInPlace(model, variant);
    return await opener.open(model.subarray(0, model.length), variant);
  } finally {
    model.close();
  }
}

/**
 * Make a session of a bundle, and test it.
 *
 * @param {Opener} opener
 * @param {import("../bundle/bundle.js").FetchedBundle} bundle
 * @param {number} number
 * @param {{wanted: import("./protocol.js").OpenRequest, selfTest?: boolean, provesItself: boolean, trial?: string, notices: string[],
 *   signal?: AbortSignal, storage: import("../cache/place.js").PlaceKind | "none"}} facts
 * @returns {Promise<import("./protocol.js").Opened>}
 */
async function start(opener, bundle, number, { wanted, selfTest, provesItself, trial, storage, notices, signal }) {
  const { name, revision, variant, labels, examples, why } = bundle;
  if (trial) await (await storeModel(trial)).begin(revision);
  const session = await openModel(opener, bundle);
  try {
    requireDevice(opener, wanted);
    if (selfTest && !examples?.length) {
      throw new EdgeInferError(`\`${name}\` has no golden examples to test itself with`, "input_error", { hint: "edge-infer convert model.onnx -o model.bundle" });
    }
    if ((selfTest || provesItself) && examples?.length) {
      const { requireGolden } = await import("../bundle/golden.js");
      await requireGolden(session, examples, variant);
    }
    signal?.throwIfAborted();
  } catch (error) {
    await session.close();
    throw error;
  }
  sessions.set(number, { session, opener, wanted, examples, read: bundle.read });
  const placed = opener.placement();
  const report = {
    model: `${name}@${revision.slice(0, 6)}`,
    variant: variant.id,
    why,
    engine: placed.name,
    engineVersion: placed.version,
    device: placed.device,
    threads: placed.threads,
    threadsWhy: placed.threadsWhy,
    fallbacks: placed.fallbacks,
    storage,
    fromStorage: bundle.isKept,
    offline: bundle.isOffline,
    notices,
    ...place(),
    ...(await traffic()),
  };
  return { session: number, inputs: [...session.inputs], outputs: [...session.outputs], labels, state: variant.state ?? (session.hasHiddenState ? [{ kind: "hidden" }] : []), report };
}
