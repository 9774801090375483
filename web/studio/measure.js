/** Measures one way to run a model: what comes over the network, the first answer, the others, and the memory. */

import { EdgeInferError } from "../src/index.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("./ways.js").Way} Way */
/** @typedef {{value: any, args: Record<string, unknown>}} Input */
/**
 * @typedef {object} Figures
 * @property {number | null} fetched Bytes over the network; 0 from the browser's cache, null where the server answers.
 * @property {number} firstMs From the wish to the first answer.
 * @property {any} answer
 * @property {number} medianMs Of the answers after it.
 * @property {number | null} memory Bytes of the engine's memory; null where they are not known.
 */

/** Answers that are timed after the first one. */
export const RUNS = 15;

/**
 * Measure in a worker of its own, which ends with the measurement. The clock begins once the page's modules are there.
 *
 * @param {Model} model
 * @param {Partial<Way>} way
 * @param {Input} input
 * @param {object} [options]
 * @param {boolean} [options.keep] Whether the model may come from, and go to, the page's storage.
 * @param {AbortSignal} [options.signal] Ends the worker.
 * @param {() => void} [options.onBegin] The clock begins.
 * @param {(first: {firstMs: number, answer: any}) => void} [options.onFirst] The first answer is there.
 * @returns {Promise<Figures>}
 * @throws {EdgeInferError} As `load` and `pipeline` do; `unsupported`: the worker cannot start.
 */
export async function measure(model, way, input, { keep = true, signal, onBegin, onFirst } = {}) {
  signal?.throwIfAborted();
  const worker = new Worker(new URL("measure-worker.js", import.meta.url), { type: "module", name: "edge-infer measure" });
  /** @type {Promise<Figures>} */
  const figures = new Promise((resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason));
    worker.onerror = () => reject(new EdgeInferError("The worker that measures does not start", "unsupported", { hint: "reload the page" }));
    worker.onmessage = ({ data: { kind, ...data } }) => {
      if (kind === "ready") worker.postMessage({ model, way, input, runs: RUNS, keep });
      else if (kind === "begun") onBegin?.();
      else if (kind === "first") onFirst?.(data);
      else if (kind === "done") resolve(data);
      else reject(EdgeInferError.fromJSON(data.error));
    };
  });
  return figures.finally(() => worker.terminate());
}
