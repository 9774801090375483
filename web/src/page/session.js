/** A session of the page: it sends runs and updates to the worker that all sessions share. */

import { EdgeInferError } from "../errors.js";
import { openClient } from "./own-thread.js";
import { copyOf, transferable } from "./protocol.js";
import { sha256 } from "../fetch/sha256.js";
import { streamOf } from "./stream.js";

/** @typedef {import("./protocol.js").Opened} Opened */
/** @typedef {import("./protocol.js").Report} Report */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./follow.js").Update} Update */
/** @typedef {import("./live.js").LiveModel} LiveModel */
/** @typedef {import("./own-thread.js").Client} Client */
/** @typedef {import("./fallback.js").FallbackModel} FallbackModel */
/** @typedef {import("./fallback.js").ServedModel} ServedModel */

// All sessions of a page share one worker and its engine, which is stopped when the last of them is disposed of.
/** @type {Client | undefined} */
let client;
let users = 0;

/** Where the copied modules lie, as the last load said. @type {string | undefined} */
let lastRoot;

/**
 * @param {string} [root] The URL under which `src/` and `vendor/` lie.
 * @returns {Client} The worker of the page's sessions: another one after one that failed; this thread where there are no workers.
 */
export function enter(root = lastRoot) {
  lastRoot = root;
  if (!client || client.ended) client = openClient("edge-infer", root);
  users++;
  return client;
}

/** @param {Client} used */
export function leave(used) {
  users--;
  if (users > 0 || used !== client) return;
  client.close();
  client = undefined;
}

/**
 * @template T
 * @param {(client: Client) => Promise<T>} work What is asked of the worker; it stays for the sessions that are opened meanwhile.
 * @param {string} [root] As of `enter`.
 * @returns {Promise<T>}
 */
export async function withWorker(work, root) {
  const used = enter(root);
  try {
    return await work(used);
  } finally {
    leave(used);
  }
}

/** @param {Opened} opened @param {Update} update @returns {Opened} */
export function withUpdate(opened, update) {
  const notices = update.note ? [...opened.report.notices, update.note] : opened.report.notices;
  return { ...opened, report: { ...opened.report, notices, update } };
}

/** @param {import("./protocol.js").Files} files @returns {ArrayBuffer[]} */
export function buffersOf(files) {
  return files.map(([, bytes]) => bytes.buffer);
}

/** @param {Record<string, unknown>} inputs @returns {Record<string, unknown>} */
function copiesOf(inputs) {
  return Object.fromEntries(Object.entries(inputs).map(([name, value]) => [name, copyOf(value)]));
}

/** A model that is ready to run; made by `load`. */
export class Session {
  /** @type {Client | undefined} */
  #client;
  /** @type {Opened} */
  #opened;
  /** @type {LiveModel | undefined} */
  #live;
  #variant;
  /** What may go to a server. @type {FallbackModel | undefined} */
  #fallback;
  /** Where the model runs on a server alone. @type {ServedModel | undefined} */
  #served;
  /** Updates come one after the other. @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** What ends the watching. @type {Set<() => void>} */
  #watches = new Set();

  /**
   * @param {Client} worker
   * @param {Opened} opened
   * @param {object} [more]
   * @param {LiveModel} [more.live] Of a model of a signed store.
   * @param {string} [more.variant]
   * @param {FallbackModel} [more.fallback] What may send runs to a server.
   * @param {ServedModel} [more.served] What runs all of them on a server.
   */
  constructor(worker, opened, { live, variant, fallback, served } = {}) {
    this.#client = worker;
    this.#opened = opened;
    this.#live = live;
    this.#variant = variant;
    this.#fallback = fallback;
    this.#served = served;
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
    return this.#fallback?.reportOf(this.#opened.report) ?? this.#opened.report;
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
   * @throws {EdgeInferError} `input_error` where an input does not fit, `execution_error` where the engine fails; the
   *   signal's reason where it is aborted.
   */
  async run(inputs, { outputs, signal } = {}) {
    const fallback = this.#fallback;
    if (!fallback || !this.#client) return this.#runIn(this.#opened.session, inputs, { outputs, signal });
    const kept = copiesOf(inputs);
    return fallback.run(this.#opened, kept, { outputs, signal }, () => this.#runIn(this.#opened.session, kept, { outputs, signal }));
  }

  /**
   * @param {number} session This one, or a fork of it.
   * @param {Record<string, unknown>} inputs
   * @param {{outputs?: string[], signal?: AbortSignal}} options
   * @returns {Promise<Record<string, Tensor>>}
   */
  async #runIn(session, inputs, { outputs, signal }) {
    if (!this.#client) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    if (this.#served) return this.#served.run(copiesOf(inputs), { outputs, signal });
    const sent = copiesOf(inputs);
    const request = /** @type {const} */ ({ kind: "run", session, inputs: sent, outputs });
    const { results, placed } = await this.#client.request(request, { transfer: transferable(sent), signal });
    if (placed) {
      const { device, threads, threadsWhy, fallbacks } = placed;
      this.#opened.report = { ...this.#opened.report, device, threads, threadsWhy, fallbacks };
    }
    return results;
  }

  /**
   * Tell how much memory the model takes here now, once it has run.
   *
   * @returns {Promise<number | null>} The bytes of the engine's WebAssembly memory, which all sessions of a page share, or of the
   *   model's own where it is compiled. Null on a GPU and on a server, which do not tell.
   */
  async memory() {
    if (!this.#client) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    return this.#served ? null : this.#client.request({ kind: "memory", session: this.#opened.session });
  }

  /**
   * Read a file of the bundle, such as `tokenizer.json`: checked by its hash, and kept like the model.
   *
   * @param {string} path As the manifest lists it; `manifest.json` for the manifest itself.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   * @throws {EdgeInferError} `manifest_error`: the manifest does not list it. `unsupported`: the model is a bare file.
   */
  async read(path, { signal } = {}) {
    if (!this.#client) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    if (this.#served) throw new EdgeInferError("A model on a server has no files here", "unsupported", { hint: `fetch them from ${this.#served.url}` });
    return this.#client.request({ kind: "read", session: this.#opened.session, path }, { signal });
  }

  /**
   * Open a small ONNX model that lies in the bundle beside its own, such as the graph of a pipeline's step.
   *
   * @param {string} path As the manifest lists it.
   * @returns {Promise<Session>} One of its own, on the same engine.
   * @throws {EdgeInferError} What `read` throws; `unsupported_model`: the engine cannot load it.
   */
  async open(path) {
    const bytes = await this.read(path);
    const files = [{ path, size: bytes.length, sha256: await sha256(bytes) }];
    const variants = [{ id: "onnx/graph", format: "onnx", precision: "", file: path }];
    const manifest = { schema_version: "1.0", name: "graph", version: "0", inputs: [], outputs: [], variants, files };
    const used = enter();
    try {
      /** @type {import("./protocol.js").Files} */
      const own = [["manifest.json", new TextEncoder().encode(JSON.stringify(manifest))], [path, bytes]];
      const request = { kind: /** @type {const} */ ("open"), url: "", keep: false, settings: { root: /** @type {string} */ (lastRoot) }, files: own };
      return new Session(used, await used.request(request, { transfer: buffersOf(own) }));
    } catch (error) {
      leave(used);
      throw error;
    }
  }

  /**
   * Run the model step by step, its state going from each step to the next: a recurrent net, or a voice detector.
   *
   * @param {import("./stream.js").StreamOptions} [options] Not needed where the bundle's manifest names the state.
   * @returns {import("./stream.js").Stream}
   * @throws {EdgeInferError} `input_error`: a name is unknown, a state of free shape has no first value, or no state is known.
   */
  stream(options) {
    const { session, state } = this.#opened;
    if (!state.some(({ kind }) => kind === "hidden")) {
      return streamOf((inputs, { signal }) => this.#runIn(session, inputs, { signal }), this.#opened, options);
    }
    const client = this.#client;
    if (!client) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    // The state is in the engine: the stream has a session of its own there, from its first step on.
    /** @type {Promise<number> | undefined} */
    let fork;
    const step = async (/** @type {Record<string, unknown>} */ inputs, /** @type {{signal?: AbortSignal}} */ { signal }) => {
      fork ??= client.request({ kind: "fork", session });
      return this.#runIn(await fork, inputs, { signal });
    };
    const close = () => void fork?.then((number) => client.request({ kind: "close", session: number })).catch(() => {});
    return streamOf(step, this.#opened, options, close);
  }

  /**
   * Bring the newest version of the store, try it on its golden examples, and run it from the next call on. Calls go on
   * meanwhile, and one that is under way ends on the weights that it began with.
   *
   * @param {import("./live.js").Asking} [asking]
   * @returns {Promise<Update>}
   * @throws {EdgeInferError} It could not be fetched, proven or run; the old version runs on.
   */
  update(asking = {}) {
    const result = this.#last.then(() => this.#update(asking));
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {import("./live.js").Asking} asking */
  async #update(asking) {
    const [used, live] = [this.#client, this.#live];
    if (!live) throw new EdgeInferError("This session is of no store", "input_error", { hint: 'load("edge+/store/MODEL")' });
    if (!used) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
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
   * @param {import("./follow.js").FollowOptions} [options]
   * @returns {() => void} Ends it.
   */
  watch(options = {}) {
    if (!this.#live) throw new EdgeInferError("This session is of no store", "input_error", { hint: 'load("edge+/store/MODEL")' });
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
    if (!used.ended && !this.#served) await used.request({ kind: "close", session: this.#opened.session });
    leave(used);
  }

  /** For `await using session = await load(...)`, where the browser knows it. */
  async [Symbol.asyncDispose]() {
    await this.dispose();
  }
}
