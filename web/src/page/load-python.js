/** Start Python in a worker of its own, and keep an image of it for the next visit. */

import { rootOf } from "../fetch/root.js";
import { VERSION } from "../version.js";
import { WorkerClient } from "./client.js";
import { PythonWorker } from "./python.js";

// When the image of Python is made: the first answers of a page come before it.
const IMAGE_DELAY_MS = 5000;

/** @typedef {import("../bundle/measured.js").EngineName} EngineName */
/** @typedef {import("../fetch/download.js").OnProgress} OnProgress */
/**
 * @typedef {object} PythonOptions
 * @property {number} [threads] How many threads an operator may use; see `startOrtEngine`.
 * @property {EngineName[]} [engines] The engines to start before any code runs: `ort`, for ONNX, unless given;
 *   `litert` is for TFLite. `["compiled"]` fetches no engine: compiled models run in every case. `report()` names the first one.
 * @property {URL | string} [root] The URL under which `src/`, `vendor/` and `wheels/` lie.
 * @property {URL | string | null} [wheel] The address of edge-infer's wheel, or of the part of it that a
 *   page needs, which is taken unless given; null to install none.
 * @property {OnProgress} [onProgress] Told how far the downloads have come.
 * @property {(stream: "stdout" | "stderr", text: string) => void} [onOutput] Told each line that Python prints; the
 *   console unless given.
 * @property {boolean} [keepImage] Whether, some seconds after the first start, images of a fresh Python and engine (70 MB with
 *   their files) are made in another worker and kept in the page's storage, so that the next starts are short; they are
 *   unless false.
 */

/**
 * Start Python; `index.js` says all of it.
 *
 * @param {PythonOptions} [options]
 * @returns {Promise<PythonWorker>}
 */
export async function loadPython(options = {}) {
  const { threads, engines = ["ort"], root, wheel, onProgress, onOutput = toConsole, keepImage = true } = options;
  const place = rootOf(root);
  const worker = new WorkerClient("edge-infer python", { onOutput, script: "python-worker.js", root: place });
  const address = wheel === null ? "" : new URL(wheel ?? `wheels/edge_infer-${VERSION}-page.tar`, place).href;
  try {
    const settings = { root: place, threads };
    const report = await worker.request({ kind: "python", settings, wheel: address, engines }, { onProgress });
    if (keepImage && !report.isFromImage) {
      // Starting a second Python takes a processor for seconds: not while the page makes use of its first one.
      const later = () => worker.ended || keepPythonImage({ root: place }).catch((error) => console.debug(`edge-infer: ${error}`));
      setTimeout(() => (globalThis.requestIdleCallback ?? setTimeout)(later), IMAGE_DELAY_MS);
    }
    return new PythonWorker(worker, report);
  } catch (error) {
    worker.close();
    throw error;
  }
}

/**
 * Keep an image of a fresh Python now; `index.js` says all of it.
 *
 * @param {{root?: URL | string}} [options]
 * @returns {Promise<boolean>}
 */
export async function keepPythonImage({ root } = {}) {
  const place = rootOf(root);
  const worker = new WorkerClient("edge-infer python image", { script: "python-worker.js", root: place });
  try {
    return await worker.request({ kind: "image", root: place });
  } finally {
    worker.close();
  }
}

/** @param {"stdout" | "stderr"} stream @param {string} text */
function toConsole(stream, text) {
  (stream === "stdout" ? console.log : console.warn)(text);
}
