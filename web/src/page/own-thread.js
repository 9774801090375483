/** Answer the requests of sessions on the thread that asks, where there are no workers: in Node and in a service worker. */

import { EdgeInferError } from "../errors.js";
import { WorkerClient } from "./client.js";
import { hasWorkers } from "./start-worker.js";

/** @typedef {import("./protocol.js").SessionRequest} SessionRequest */
/** @typedef {Pick<WorkerClient, "request" | "close" | "ended">} Client What answers: a worker, or this thread. */

/**
 * @param {string} name The worker's name, which the browser's tools show.
 * @param {string} [root] The URL under which `src/` and `vendor/` lie.
 * @returns {Client} A worker of the page's sessions; this thread where there are none.
 */
export function openClient(name, root) {
  return hasWorkers() ? new WorkerClient(name, { root }) : new OwnThread();
}

/** What a worker would answer, answered here, one request after the other. */
export class OwnThread {
  /** Why it takes no more requests. @type {EdgeInferError | undefined} */
  ended = undefined;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {import("./client.js").RequestBody} body
   * @param {Parameters<WorkerClient["request"]>[1]} [options]
   * @returns {Promise<any>}
   * @throws {EdgeInferError} The signal's reason where it is aborted.
   */
  request(body, { onProgress = () => {}, signal = new AbortController().signal } = {}) {
    if (this.ended) return Promise.reject(this.ended);
    const answered = this.#last.then(async () => {
      signal.throwIfAborted();
      try {
        const { handle } = await import("./model-host.js");
        const [value] = await handle({ .../** @type {SessionRequest} */ (body), id: 0 }, signal, onProgress);
        return value;
      } catch (error) {
        signal.throwIfAborted();
        throw error instanceof EdgeInferError ? error : EdgeInferError.fromJSON(EdgeInferError.describe(error));
      }
    });
    this.#last = answered.catch(() => {});
    return answered;
  }

  /** Take no more requests. The engine stays: it is this thread's. @param {EdgeInferError} [why] */
  close(why = new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" })) {
    this.ended ??= why;
  }
}
