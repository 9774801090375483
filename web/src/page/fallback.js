/**
 * A model that runs here, with the same model on a server as fallback: `load(url, { fallback })`.
 *
 * The rules are those of `edge_infer.backends.remote.fallback`. A run that fails for want of memory is sent to the server; so are all
 * runs once three in a row were slower than the time that a run may take, unless the server turns out to be slower still.
 * Streams stay here.
 */

import { RemoteModel, tensorsOf } from "../engines/remote-model.js";
import { EdgeInferError } from "../errors.js";
import { checkNames } from "../tensors.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../engines/remote-model.js").Specs} Specs */
/** @typedef {import("./protocol.js").Opened} Opened */
/** @typedef {import("./protocol.js").Report} Report */
/** @typedef {{outputs?: string[], signal?: AbortSignal}} RunOptions */
/** @typedef {{url: string, apiKey?: string, budgetMs?: number}} FallbackOptions The model on the server, its key, and the milliseconds that a run may take. */

/** @typedef {{url: string, run: (inputs: Record<string, unknown>, options: RunOptions) => Promise<Record<string, Tensor>>}} ServedModel */

/** So many runs in a row over the budget are not an accident; the first of all is not counted, it warms up. */
const SLOW_RUNS = 3;
/** The codes of `edge_infer.errors.BackendError`: what says that no engine here can do it. */
const BACKEND_ERRORS = ["backend_error", "backend_unavailable", "cuda_unavailable", "unsupported_model", "unsupported", "execution_error", "out_of_memory", "device_lost"];

/**
 * Check what `load` was given.
 *
 * @param {URL | string} fallback
 * @param {number | undefined} latencyBudgetMs
 * @param {string} address The bundle's.
 * @param {string} [apiKey] That of the bundle's server; any other is not told.
 * @returns {FallbackOptions}
 * @throws {EdgeInferError} `input_error`: it is not a model on a server, or the time is wrong.
 */
export function fallbackOf(fallback, latencyBudgetMs, address, apiKey) {
  if (!namesServer(fallback)) {
    throw new EdgeInferError(`\`fallback\` is \`${fallback}\`, which is not a model on a server`, "input_error", { hint: 'fallback: "http://127.0.0.1:8080/v2/models/NAME"' });
  }
  if (latencyBudgetMs !== undefined && !(latencyBudgetMs > 0)) {
    throw new EdgeInferError(`\`latencyBudgetMs\` is ${latencyBudgetMs}, expected more than 0`, "input_error", { details: { got: latencyBudgetMs } });
  }
  const url = new URL(fallback, globalThis.location?.href);
  return { url: url.href, apiKey: url.origin === new URL(address).origin ? apiKey : undefined, budgetMs: latencyBudgetMs };
}

/** @param {URL | string} fallback @returns {boolean} Whether it is a model on a server, and no bundle. */
export function namesServer(fallback) {
  const base = globalThis.location?.href ?? "file:///";
  return String(fallback).includes("/v2/models/") && URL.canParse(String(fallback), base) && /^https?:$/.test(new URL(fallback, base).protocol);
}

/**
 * @param {unknown} error What `load` threw.
 * @returns {boolean} Whether a server may help.
 */
export function mayBeServed(error) {
  return isShortOfMemory(error) || (error instanceof EdgeInferError && BACKEND_ERRORS.includes(error.code));
}

/** @param {unknown} error @returns {boolean} The browser's own words for it differ, and cross a worker as text. */
function isShortOfMemory(error) {
  if (error instanceof EdgeInferError && error.code === "out_of_memory") return true;
  return error instanceof Error && /RangeError: .*(allocation failed|out of memory)|^(Array buffer allocation failed|out of memory)/i.test(error.message);
}

/**
 * Open a model that runs on a server alone.
 *
 * @param {FallbackOptions} options
 * @param {unknown} error Why it does not run here.
 * @param {AbortSignal} [signal]
 * @returns {Promise<{served: ServedModel, opened: Opened}>}
 */
export async function openServed({ url, apiKey }, error, signal) {
  const model = new RemoteModel(url, apiKey);
  const { name, version, inputs, outputs } = await model.describe(signal);
  const report = {
    model: `${name}@${version}`, variant: "remote/v2", why: "the server decides", engine: "remote", engineVersion: "v2", device: "remote", threads: 0,
    threadsWhy: "the server decides", storage: /** @type {const} */ ("none"), fromStorage: false, offline: false, fallbacks: [firstLine(error)], notices: [],
    isolated: globalThis.crossOriginIsolated === true, bytesFetched: 0, bytesLoaded: 0,
  };
  const served = { url: model.url, run: (/** @type {Record<string, unknown>} */ feeds, /** @type {RunOptions} */ more) => model.run(tensorsOf(inputs, feeds), more) };
  return { served, opened: { session: 0, inputs: [...inputs], outputs: [...outputs], labels: [], state: [], report } };
}

export class FallbackModel {
  /** @type {Promise<RemoteModel> | undefined} */
  #remote;
  #runs = 0;
  #runsThere = 0;
  /** @type {number[]} */
  #slow = [];
  #isRemote = false;
  #isSettled;
  /** How many runs went to the server, and why, by kind. @type {Map<string, {count: number, reason: string}>} */
  #notes = new Map();
  #wayBack = "";

  /**
   * @param {FallbackOptions} options
   * @param {() => number} [now] Tells the time in milliseconds.
   */
  constructor(options, now = () => performance.now()) {
    this.options = options;
    this.now = now;
    this.#isSettled = options.budgetMs === undefined;
  }

  /**
   * Run the model.
   *
   * @param {Specs} specs Those of the model here.
   * @param {Record<string, unknown>} inputs The caller's own copies, which the run here does not move away.
   * @param {RunOptions} options
   * @param {() => Promise<Record<string, Tensor>>} here Runs it here.
   * @returns {Promise<Record<string, Tensor>>}
   */
  async run(specs, inputs, options, here) {
    if (this.#isRemote) return this.#runThere(specs, inputs, options, here);
    const start = this.now();
    let results;
    try {
      results = await here();
    } catch (error) {
      if (!isShortOfMemory(error)) throw error;
      return this.#send(specs, tensorsOf(specs.inputs, inputs), options, "memory", `too little memory here (${firstLine(error)})`);
    }
    if (!this.#isSettled) this.#watch(this.now() - start);
    return results;
  }

  /** @param {Report} report What the model here runs on. @returns {Report} With what was sent to the server, for which reason. */
  reportOf(report) {
    const { url } = this.options;
    const sent = [...this.#notes.values()].map(({ count, reason }) => `${count} calls at ${url}: ${reason}`);
    if (this.#wayBack) sent.push(`then here again: ${this.#wayBack}`);
    return { ...report, device: this.#isRemote ? "remote" : report.device, fallbacks: [...report.fallbacks, ...sent] };
  }

  /** @returns {number} */
  get #budgetMs() {
    return /** @type {number} */ (this.options.budgetMs);
  }

  /** Go over to the server after some slow runs in a row. @param {number} ms */
  #watch(ms) {
    this.#runs++;
    if (this.#isRemote) return; // a run that began here before the others went over
    if (this.#runs === 1 || ms <= this.#budgetMs) {
      this.#slow = [];
      return;
    }
    this.#slow.push(ms);
    this.#isRemote = this.#slow.length >= SLOW_RUNS;
  }

  /**
   * Run on the server because here it is too slow; where the server is slower, or fails, come back for good.
   *
   * @param {Specs} specs @param {Record<string, unknown>} inputs @param {RunOptions} options @param {() => Promise<Record<string, Tensor>>} here
   */
  async #runThere(specs, inputs, options, here) {
    const hereMs = Math.min(...this.#slow);
    const feeds = tensorsOf(specs.inputs, inputs); // before the server is asked: what does not fit is not its fault
    checkNames("Output", options.outputs ?? [], specs.outputs);
    const start = this.now();
    let results;
    try {
      results = await this.#send(specs, feeds, options, "slow", `${figure(hereMs)} ms here, more than ${this.#budgetMs} ms`);
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof EdgeInferError)) throw error;
      this.#comeBack(`the server failed (${firstLine(error)})`);
      return here();
    }
    const ms = this.now() - start;
    if (!this.#isSettled && ++this.#runsThere > 1) { // the first run there opens the connection
      this.#isSettled = true;
      if (ms > hereMs) this.#comeBack(`the server took ${figure(ms)} ms`);
    }
    return results;
  }

  /** @param {string} reason */
  #comeBack(reason) {
    this.#isRemote = false;
    this.#isSettled = true;
    this.#wayBack = reason;
  }

  /**
   * Run on the server; the reasons of one kind, which may differ in a figure, are counted under the first.
   *
   * @param {Specs} specs @param {Record<string, Tensor>} feeds @param {RunOptions} options @param {string} kind @param {string} reason
   */
  async #send(specs, feeds, options, kind, reason) {
    const remote = await this.#there(specs, options.signal);
    const results = await remote.run(feeds, { outputs: options.outputs ?? specs.outputs.map(({ name }) => name), signal: options.signal });
    const known = this.#notes.get(kind) ?? { count: 0, reason };
    this.#notes.set(kind, { ...known, count: known.count + 1 });
    return results;
  }

  /**
   * @param {Specs} specs
   * @param {AbortSignal} [signal] Ends the wait of this run; others may wait for the same answer.
   * @returns {Promise<RemoteModel>} Where the server could not be asked, it is tried again with the next run.
   */
  async #there(specs, signal) {
    const { url, apiKey } = this.options;
    const connect = async () => {
      const remote = new RemoteModel(url, apiKey);
      await remote.check(specs);
      return remote;
    };
    const opening = (this.#remote ??= connect());
    opening.catch(() => this.#remote === opening && (this.#remote = undefined));
    if (!signal) return opening;
    signal.throwIfAborted();
    let giveUp = () => {};
    /** @type {Promise<never>} */
    const givenUp = new Promise((_, reject) => void (giveUp = () => reject(signal.reason)));
    signal.addEventListener("abort", giveUp);
    return Promise.race([opening, givenUp]).finally(() => signal.removeEventListener("abort", giveUp));
  }
}

/** @param {number} value @returns {string} With three digits, as Python's `.3g`. */
function figure(value) {
  return String(Number(value.toPrecision(3)));
}

/** @param {unknown} error */
function firstLine(error) {
  return (error instanceof Error ? error.message : String(error)).split("\n")[0].slice(0, 200);
}
