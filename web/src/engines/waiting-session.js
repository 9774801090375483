/**
 * A session on the GPU in a worker of its own, for a thread that blocks until the results are there: Python's, in a
 * browser that cannot switch stacks. It needs shared memory, and so a cross-origin isolated page, and a worker: a
 * page's main thread may not wait.
 *
 * The other worker must have fetched all that it needs before this thread blocks: a browser may ask this thread for the
 * other's files. Therefore a session is opened asynchronously, and one that loses its GPU does not start another engine.
 */

import { EdgeInferError } from "../errors.js";
import { LONGER, WAITING, newShelf, take } from "./shelf.js";
import { canShareMemory } from "./threads.js";

/** @typedef {import("./shelf.js").Crossed} Crossed */
/** @typedef {import("./shelf.js").Shelf} Shelf */
/** @typedef {{value?: any, error?: import("../errors.js").ErrorDocument}} Answer */

/** @type {{worker: Worker, waiting: Map<number, (answer: Answer) => void>} | undefined} */
let shared;
let nextId = 1;

/** @returns {NonNullable<typeof shared>} The worker that all sessions of this thread share. */
function sharedWorker() {
  if (shared) return shared;
  const worker = new Worker(new URL("./waiting-worker.js", import.meta.url), { type: "module", name: "edge-infer webgpu" });
  /** @type {Map<number, (answer: Answer) => void>} */
  const waiting = new Map();
  worker.onmessage = ({ data: { id, ...answer } }) => {
    waiting.get(id)?.(answer);
    waiting.delete(id);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    const said = `The GPU's worker failed: ${event.message ?? "one of its modules could not be loaded"}`;
    for (const answer of waiting.values()) answer({ error: new EdgeInferError(said, "execution_error").toJSON() });
    waiting.clear();
    shared = undefined;
  };
  shared = { worker, waiting };
  return shared;
}

/**
 * @param {object} request
 * @returns {Promise<any>}
 */
async function ask(request) {
  const { worker, waiting } = sharedWorker();
  const id = nextId++;
  /** @type {Answer} */
  const { value, error } = await new Promise((resolve) => {
    waiting.set(id, resolve);
    worker.postMessage({ ...request, id });
  });
  if (error) throw EdgeInferError.fromJSON(error);
  return value;
}

/** @returns {boolean} Whether this thread may wait for another. */
export function canWait() {
  return canShareMemory() && "WorkerGlobalScope" in globalThis;
}

/** The interface of `BytesSession`, and a run that blocks. */
export class WaitingSession {
  /**
   * @param {URL | string} root
   * @param {Uint8Array} model
   * @param {string} variant
   * @returns {Promise<WaitingSession>} As `BytesSession.open` does.
   */
  static async open(root, model, variant) {
    return new WaitingSession(await ask({ kind: "open", root: String(root), model, variant }));
  }

  /** @param {{session: number, specs: string}} opened */
  constructor({ session, specs }) {
    this.session = session;
    this.specs = specs;
    /** @type {Shelf} */
    this.shelf = newShelf();
  }

  /** @returns {string} */
  describe() {
    return this.specs;
  }

  /**
   * @param {string} described
   * @param {Uint8Array[]} buffers
   * @returns {Promise<Crossed>}
   */
  run(described, buffers) {
    return ask({ kind: "run", session: this.session, described, buffers });
  }

  /**
   * Run as `run` does, and block until the results are there.
   *
   * @param {string} described
   * @param {Uint8Array[]} buffers
   * @returns {Crossed}
   */
  runBlocking(described, buffers) {
    const { worker } = sharedWorker();
    const { state } = this.shelf;
    Atomics.store(state, 0, WAITING);
    worker.postMessage({ kind: "run", session: this.session, described, buffers, shelf: this.shelf, id: 0 });
    Atomics.wait(state, 0, WAITING);
    if (Atomics.load(state, 0) === LONGER) {
      this.shelf.data = new Uint8Array(new SharedArrayBuffer(2 * state[1]));
      Atomics.store(state, 0, WAITING);
      worker.postMessage({ kind: "again", shelf: this.shelf, id: 0 });
      Atomics.wait(state, 0, WAITING);
    }
    return take(this.shelf);
  }

  /** Give the memory back; the worker stays for the next session. */
  async close() {
    await ask({ kind: "close", session: this.session });
  }
}
