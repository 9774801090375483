/**
 * Measure the ways to run a bundle in this browser, as `edge_infer.runtime.tuning` does natively: every variant on the engine that
 * reads it, with one thread and with more. The ways take turns, a block of runs each, round after round: a machine that
 * grows slow slows them all. Each number of threads has a worker of its own, as an engine cannot change its own.
 */

import { openClient } from "./own-thread.js";
import { engineOf } from "../bundle/selection.js";
import { fastest, upperRatio } from "../bundle/measured.js";
import { canShareMemory, usual } from "../engines/threads.js";
import { EdgeInferError } from "../errors.js";

/** @typedef {import("../bundle/measured.js").Measurement} Measurement */
/** @typedef {import("../bundle/measured.js").Way} Way */
/** @typedef {import("../bundle/measured.js").Failure} Failure */
/**
 * @typedef {object} TuneOptions
 * @property {string} [variant] The only variant to measure.
 * @property {import("../bundle/measured.js").EngineName} [backend] The only engine to measure.
 * @property {("wasm" | "webgpu")[]} [devices] What to run on; wasm unless given, as WebGPU's engine is another download.
 * @property {number[]} [threads] The numbers of threads to try; unless given 1, 2, 4 ... up to the processors where the page is
 *   cross-origin isolated, else 1.
 * @property {number} [maxTimeMs] About how long to measure, the loading not counted; 5000 unless given. There are at least 5 rounds.
 * @property {URL | string} [root] The URL under which `src/` and `vendor/` lie.
 * @property {string} [apiKey] What the bundle's server asks for, where it has tenants.
 * @property {AbortSignal} [signal]
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 */
/**
 * @typedef {object} Tuning
 * @property {string} model The bundle's name and the first digits of its revision.
 * @property {Measurement[]} rows One for each way that works and gives the golden outputs, the fastest first.
 * @property {Failure[]} failed The ways that do not.
 * @property {Measurement & {why: string}} best The way that the next `load` takes: the fastest, unless it is too noisy here to tell that
 *   from the choice of the rules.
 */
/** @typedef {import("./own-thread.js").Client} Client */
/** @typedef {{way: Way, client: Client, session: number, runs: number, times: number[]}} Started */

// A block of runs lasts at least this long: far above the resolution of a page's clock (0.1 ms).
const BLOCK_MS = 5;
const [MIN_ROUNDS, MAX_ROUNDS] = [5, 51];
// Models that take more than this together, loaded, are measured one after another; an engine takes some 3 times a file.
const MAX_LOADED_BYTES = 256 * 2 ** 20;
const LOADED_FACTOR = 3;

/**
 * @param {string} url The address of a bundle.
 * @param {string} root
 * @param {TuneOptions} options
 * @returns {Promise<Tuning>}
 * @throws {EdgeInferError} No way works here, or the bundle cannot be had.
 */
export async function measure(url, root, { variant, backend, devices = ["wasm"], threads = usableThreads(), maxTimeMs = 5000, apiKey, signal, onProgress }) {
  if (!(maxTimeMs > 0)) throw new EdgeInferError(`maxTimeMs is ${maxTimeMs}, expected more than 0`, "input_error");
  if (threads.length === 0 || threads.some((one) => !(Number.isInteger(one) && one > 0))) {
    throw new EdgeInferError(`threads is [${threads}], expected numbers from 1`, "input_error");
  }
  /** @type {Map<number, Client>} */
  const clients = new Map(threads.map((count) => [count, openClient(`edge-infer tune ${count}`, root)]));
  const first = /** @type {Client} */ (clients.get(threads[0]));
  try {
    /** @type {import("./protocol.js").Survey} */
    const { model, revision, variants, rule } = await first.request({ kind: "survey", url, apiKey, variant, backend }, { signal });
    /** @type {(Way & {bytes: number})[]} */
    const ways = [];
    for (const { id, format, bytes } of variants) {
      const engine = engineOf(format);
      for (const device of devices) {
        if (device === "webgpu" && engine !== "ort") continue;
        for (const count of takesThreads(engine, device) ? threads : threads.slice(0, 1)) ways.push({ variant: id, backend: engine, device, threads: count, bytes });
      }
    }
    const isMuch = ways.reduce((sum, { bytes }) => sum + bytes, 0) * LOADED_FACTOR > MAX_LOADED_BYTES;
    const groups = isMuch ? ways.map((way) => [way]) : [ways];
    /** @type {Measurement[]} */
    const rows = [];
    /** @type {Tuning["failed"]} */
    const failed = [];
    for (const group of groups) {
      /** @type {Started[]} */
      const started = [];
      for (const { bytes: _, ...way } of group) {
        const client = /** @type {Client} */ (clients.get(way.threads));
        try {
          started.push(await start(client, way, { url, root, apiKey, signal, onProgress }));
        } catch (error) {
          signal?.throwIfAborted();
          const isWrong = error instanceof EdgeInferError && "golden" in error.details;
          failed.push({ ...way, reason: error instanceof Error ? error.message : String(error), isWrong });
        }
      }
      await takeTurns(started, maxTimeMs / groups.length, signal);
      const base = wayOfRules(started, rule, devices);
      for (const one of started) {
        const { client, session, way, times } = one;
        await client.request({ kind: "close", session });
        rows.push({ ...way, ...middle(times), ...(base && { vsRule: one === base ? 1 : upperRatio(times, base.times) }) });
      }
    }
    rows.sort((one, other) => one.ms - other.ms);
    await first.request({ kind: "remember", revision, rows, failed });
    if (rows.length === 0) {
      const reasons = failed.map(({ variant: id, threads: count, reason }) => `${id}, threads ${count}: ${reason}`);
      throw new EdgeInferError(`No way to run \`${model}\` works here: ${reasons.join("; ")}`, "unsupported_model");
    }
    const best = /** @type {Tuning["best"]} */ (fastest(rows, {}));
    return { model, rows, failed, best };
  } finally {
    for (const client of clients.values()) client.close();
  }
}

/**
 * Measure what `load` may choose from, unless that was done in this browser.
 *
 * @param {Client} worker
 * @param {string} url
 * @param {string} root
 * @param {import("../bundle/measured.js").Asked & Pick<TuneOptions, "apiKey" | "signal" | "onProgress">} asked
 */
export async function measureOnce(worker, url, root, { device = "auto", threads, onProgress, signal, ...asked }) {
  if ((await worker.request({ kind: "survey", url, ...asked, device, threads }, { signal })).isMeasured) return;
  if (device === "webnn") return; // what it takes depends on the system's state: asked for by name only
  const devices = device === "auto" ? undefined : [device];
  try {
    await measure(url, root, { ...asked, devices, threads: threads === undefined ? undefined : [threads], onProgress, signal });
  } catch (error) {
    // Without a GPU the session goes on with wasm, and says so.
    if (device !== "webgpu" || !(error instanceof EdgeInferError) || error.code !== "unsupported_model") throw error;
  }
}

/**
 * @param {Way["backend"]} engine
 * @param {Way["device"]} device
 * @returns {boolean} Whether the number of threads makes a difference: the threads are those of wasm, and a compiled model has one.
 */
function takesThreads(engine, device) {
  return device === "wasm" && engine !== "compiled";
}

/** @returns {number[]} */
function usableThreads() {
  const most = canShareMemory() ? navigator.hardwareConcurrency : 1;
  const counts = new Set([most]);
  for (let count = 1; count < most; count *= 2) counts.add(count);
  return [...counts].sort((one, other) => one - other);
}

/**
 * Load a way, have it prove itself on its golden examples, and find how many runs fill a block.
 *
 * @param {Client} client
 * @param {Way} way
 * @param {{url: string, root: string, apiKey?: string, signal?: AbortSignal, onProgress?: import("../fetch/download.js").OnProgress}} options
 * @returns {Promise<Started>}
 */
async function start(client, way, { url, root, apiKey, signal, onProgress }) {
  const { variant, backend, device, threads } = way;
  const request = /** @type {const} */ ({ kind: "open", url, apiKey, variant, backend, device, keep: true, provesItself: true });
  /** @type {import("./protocol.js").Opened} */
  const { session, report } = await client.request({ ...request, settings: { root, threads } }, { signal, onProgress });
  try {
    if (report.device !== device || (takesThreads(backend, device) && report.threads !== threads)) {
      const said = report.fallbacks.at(-1) ?? `it runs on ${report.device} with ${report.threads} threads`;
      throw new EdgeInferError(said, "unsupported");
    }
    let least = Infinity;
    for (let i = 0; i < 3; i++) least = Math.min(least, await client.request({ kind: "time", session, runs: 1 }, { signal }));
    return { way, client, session, runs: Math.max(1, Math.round(BLOCK_MS / Math.max(least, 0.001))), times: [] };
  } catch (error) {
    await client.request({ kind: "close", session });
    throw error;
  }
}

/**
 * @param {Started[]} started
 * @param {number} maxTimeMs
 * @param {AbortSignal | undefined} signal
 */
async function takeTurns(started, maxTimeMs, signal) {
  const until = performance.now() + maxTimeMs;
  for (let round = 0; round < MAX_ROUNDS && (round < MIN_ROUNDS || performance.now() < until); round++) {
    // Each round begins with another one, so that none always follows the same neighbour.
    for (let i = 0; i < started.length; i++) {
      const { client, session, runs, times } = started[(round + i) % started.length];
      times.push(await client.request({ kind: "time", session, runs }, { signal }));
    }
  }
}

/**
 * @param {Started[]} started
 * @param {string} rule The variant that the rules choose.
 * @param {readonly string[]} devices
 * @returns {Started | undefined} The way that the rules choose: with the number of threads that is taken unasked, else with the most.
 */
function wayOfRules(started, rule, devices) {
  const device = devices.includes("wasm") ? "wasm" : devices[0];
  const found = started.filter(({ way }) => way.variant === rule && way.device === device).sort((one, other) => one.way.threads - other.way.threads);
  return found.find(({ way }) => way.threads === usual()) ?? found.at(-1);
}

/** @param {number[]} times @returns {{ms: number, spread: number}} */
function middle(times) {
  const sorted = times.toSorted((one, other) => one - other);
  const at = (/** @type {number} */ share) => sorted[Math.round(share * (sorted.length - 1))];
  return { ms: at(0.5), spread: (at(0.75) - at(0.25)) / 2 / at(0.5) };
}
