/** Answer the page's requests in a worker one after the other, with progress messages. */

import { EdgeInferError } from "../errors.js";
import { listed } from "../fetch/listed.js";

/** @typedef {import("./protocol.js").Request} Request */
/** @typedef {import("./protocol.js").Reply} Reply */
/** @typedef {import("../fetch/download.js").OnProgress} OnProgress */
/** @typedef {[unknown, Transferable[]]} Answered The answer, and the buffers to move with it. */

/** @param {Reply} reply @param {Transferable[]} [moved] */
export function post(reply, moved = []) {
  self.postMessage(reply, { transfer: moved });
}

/**
 * Answer the page's requests, and tell it what was fetched for them: a page that is kept offline needs that, even where
 * this worker is closed by then.
 *
 * @param {(request: Request, signal: AbortSignal, onProgress: OnProgress) => Promise<Answered>} handle
 * @param {() => string[]} [spared] The addresses of what was not fetched, and the next visit may need.
 */
export function answerRequests(handle, spared = () => []) {
  /** @type {Set<string>} */
  const told = new Set();
  const tellResources = async () => {
    await listed();
    const urls = [...resources(), ...spared()].filter((url) => !told.has(url));
    for (const url of urls) told.add(url);
    if (urls.length) post({ kind: "resources", urls });
  };
  /** What gives up a request that is worked on or waits; a run is not given up once it is here. @type {Map<number, AbortController>} */
  const aborts = new Map();
  const never = new AbortController().signal;
  // Requests wait for the one before: a load and a run of the same engine must not interleave.
  let last = Promise.resolve();

  /** @param {Request} request */
  const respond = async (request) => {
    const { id } = request;
    const signal = aborts.get(id)?.signal ?? never;
    try {
      signal.throwIfAborted();
      const [value, moved] = request.kind === "resources" ? [null, []] : await handle(request, signal, (progress) => post({ kind: "progress", id, progress }));
      if (request.kind !== "run") await tellResources(); // a run is quick
      post({ kind: "result", id, value }, moved);
    } catch (error) {
      await tellResources();
      post({ kind: "error", id, error: EdgeInferError.describe(error) });
    } finally {
      aborts.delete(id);
    }
  };

  self.onmessage = ({ data: request }) => {
    if (request.kind === "abort") {
      aborts.get(request.target)?.abort();
      return;
    }
    if (request.kind !== "run") aborts.set(request.id, new AbortController()); // which takes longer than a small run
    last = last.then(() => respond(request));
  };
  post({ kind: "ready" });
}

/** @param {Request} request @returns {EdgeInferError} */
export function unknownRequest(request) {
  return new EdgeInferError(`The worker does not know the request \`${request.kind}\``, "input_error", {
    hint: "reload the page: its files are of different versions",
  });
}

export function place() {
  return { isolated: globalThis.crossOriginIsolated === true };
}

/** @returns {Promise<import("./protocol.js").Traffic>} */
export async function traffic() {
  await listed();
  const entries = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType("resource"));
  const sum = (/** @type {(entry: PerformanceResourceTiming) => number} */ of) => entries.reduce((all, entry) => all + of(entry), 0);
  return { bytesFetched: sum((entry) => entry.transferSize), bytesLoaded: sum((entry) => entry.decodedBodySize) };
}

/** @returns {string[]} The addresses of all that this worker has loaded. */
function resources() {
  return performance.getEntriesByType("resource").map(({ name }) => name);
}
