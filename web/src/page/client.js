/** Send requests to a worker as promises; a worker that dies rejects them all. */

import { EdgeInferError } from "../errors.js";
import { ROOT } from "../fetch/root.js";
import { forbiddenBy, startCopiedWorker, startWorker } from "./start-worker.js";

/** @typedef {import("./protocol.js").Reply} Reply */
/** @typedef {import("./protocol.js").SessionRequest | import("./protocol.js").PythonRequests | import("./protocol.js").GenerationRequest | import("./protocol.js").SequenceRequest} RequestBody */
/** @typedef {import("./start-worker.js").Script} Script */
/**
 * @typedef {object} Waiting
 * @property {(value: any) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {(piece: import("../generation/text-model.js").Piece) => void} [onPiece]
 */

// How long after a worker's failure the browser may take to say that a policy is why.
const POLICY_MS = 50;

/** The workers that are open. @type {Set<WorkerClient>} */
export const openWorkers = new Set();
/** The addresses of what workers have fetched, those that are closed too. @type {Set<string>} */
export const workerResources = new Set();

/** A worker, and the requests it has not answered. */
export class WorkerClient {
  /**
   * @param {string} name The worker's name, which the browser's tools show.
   * @param {object} [options]
   * @param {(stream: "stdout" | "stderr", text: string) => void} [options.onOutput] Told what Python prints.
   * @param {Script} [options.script] What the worker runs; `worker.js` unless given.
   * @param {string} [options.root] Under which `src/` lies too: a worker is started from there where a bundler has moved these
   *   modules and written no file for it.
   */
  constructor(name, { onOutput, script = "worker.js", root } = {}) {
    /** @type {Map<number, Waiting>} */
    this.waiting = new Map();
    this.nextId = 1;
    /** What is not posted yet. @type {{id: number, message: object, transfer: Transferable[], isHeld: boolean}[]} */
    this.outbox = [];
    /** How many requests the worker has not answered. */
    this.posted = 0;
    /** Whether nothing is posted yet, because the worker may be started again. */
    this.isWaiting = root !== undefined && root !== ROOT;
    /** Why it takes no more requests. @type {EdgeInferError | undefined} */
    this.ended = undefined;
    this.onOutput = onOutput;
    this.worker = startWorker(script, name);
    openWorkers.add(this);
    this.listen(name, () => {
      if (!this.isWaiting) return false;
      this.isWaiting = false;
      this.worker.terminate();
      this.worker = startCopiedWorker(script, name, /** @type {string} */ (root));
      this.listen(name, () => false);
      this.flush();
      return true;
    });
  }

  /**
   * @param {string} name
   * @param {() => boolean} replaced Starts another worker where this one failed at its start, and may be replaced.
   */
  listen(name, replaced) {
    const { worker } = this;
    worker.onmessage = ({ data }) => this.receive(data);
    worker.onerror = (event) => {
      event.preventDefault();
      if (worker !== this.worker || replaced()) return;
      const end = () => {
        const directive = forbiddenBy();
        const said = event.message ? `: ${event.message}` : directive ? ": the page's policy forbids it" : "; one of its modules could not be loaded";
        const missing = event.message ? "reload the page" : "is the server there? load again when it is; after `keepOffline()` a page needs none";
        const hint = directive ? `let the page's Content-Security-Policy say \`${directive} 'self' blob:\`` : missing;
        this.close(new EdgeInferError(`The worker \`${name}\` failed${said}`, "backend_unavailable", { hint }));
      };
      // Why a policy forbids it is told apart, at about the same time.
      if (event.message) end();
      else setTimeout(end, POLICY_MS);
    };
  }

  /**
   * Ask the worker for something.
   *
   * @param {RequestBody} body
   * @param {object} [options]
   * @param {Transferable[]} [options.transfer] Buffers to move instead of copying them.
   * @param {import("../fetch/download.js").OnProgress} [options.onProgress]
   * @param {(piece: import("../generation/text-model.js").Piece) => void} [options.onPiece]
   * @param {AbortSignal} [options.signal]
   * @returns {Promise<any>}
   * @throws {EdgeInferError} What the worker threw, rebuilt; the signal's reason where it is aborted.
   */
  request(body, { transfer = [], onProgress, onPiece, signal } = {}) {
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.ended) return Promise.reject(this.ended);
    const id = this.nextId++;
    const answered = new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, onProgress, onPiece });
      this.outbox.push({ id, message: { ...body, id }, transfer, isHeld: signal !== undefined && body.kind === "run" });
      this.flush();
    });
    if (!signal) return answered;
    const giveUp = () => {
      const waiting = this.waiting.get(id);
      if (!waiting) return;
      this.waiting.delete(id);
      this.worker.postMessage({ kind: "abort", target: id, id: 0 });
      waiting.reject(signal.reason);
    };
    signal.addEventListener("abort", giveUp);
    return answered.finally(() => signal.removeEventListener("abort", giveUp));
  }

  /**
   * Post what may be posted. A run that can be given up waits here for its turn: a worker that computes hears of
   * nothing, and would begin it.
   */
  flush() {
    if (this.isWaiting) return;
    for (let next = this.outbox[0]; next && !(next.isHeld && this.posted > 0); next = this.outbox[0]) {
      this.outbox.shift();
      const waiting = this.waiting.get(next.id);
      if (!waiting) continue;
      try {
        this.worker.postMessage(next.message, next.transfer);
        this.posted++;
      } catch (error) {
        this.waiting.delete(next.id);
        waiting.reject(error); // it has a value that cannot be cloned
      }
    }
  }

  /** @param {Reply} reply */
  receive(reply) {
    if (reply.kind === "ready") {
      this.isWaiting = false;
      this.flush();
      return;
    }
    if (reply.kind === "output") {
      this.onOutput?.(reply.stream, reply.text);
      return;
    }
    if (reply.kind === "resources") {
      for (const url of reply.urls) workerResources.add(url);
      return;
    }
    const waiting = this.waiting.get(reply.id);
    if (reply.kind === "progress") {
      waiting?.onProgress?.(reply.progress);
      return;
    }
    if (reply.kind === "piece") {
      waiting?.onPiece?.(reply.piece);
      return;
    }
    this.waiting.delete(reply.id);
    this.posted--;
    this.flush();
    if (reply.kind === "result") waiting?.resolve(reply.value);
    else waiting?.reject(EdgeInferError.fromJSON(reply.error));
  }

  /**
   * Stop the worker, and with it all that it holds. A second call does nothing.
   *
   * @param {EdgeInferError} [why] What requests fail with, now and later.
   */
  close(why = new EdgeInferError("The worker is closed", "input_error", { hint: "start it again" })) {
    this.ended ??= why;
    openWorkers.delete(this);
    this.worker.terminate();
    for (const { reject } of this.waiting.values()) reject(this.ended);
    this.waiting.clear();
  }
}
