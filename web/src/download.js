/** Downloads that report their progress, and say clearly what is missing. */

import { InferError } from "./errors.js";

/**
 * @typedef {object} Progress How far a load has come.
 * @property {"engine" | "model" | "python" | "package"} phase What is being loaded.
 * @property {string} file The file of this step.
 * @property {number} loaded The bytes of it that have arrived, unpacked.
 * @property {number} total The bytes that it has; 0 where the server does not say.
 * @property {boolean} [cached] Whether it came from the page's storage; told of models.
 */
/** @typedef {(progress: Progress) => void} OnProgress */

/**
 * Fetch a URL, and report every piece that arrives.
 *
 * @param {URL | string} url
 * @param {object} options
 * @param {Progress["phase"]} options.phase
 * @param {number} [options.total] The bytes that it has, where they are known.
 * @param {OnProgress} [options.onProgress]
 * @param {string} [options.hint] What to do where it is missing.
 * @param {string} [options.type] The content type of the response that is returned.
 * @param {typeof fetch} [options.fetcher] What fetches.
 * @param {AbortSignal} [options.signal]
 * @returns {Promise<Response>} With a body that reports while it is read.
 * @throws {InferError} `fetch_error`: the server does not answer, or answers with an error.
 */
export async function download(url, { phase, total = 0, onProgress, hint = "", type, fetcher = fetch, signal }) {
  const place = new URL(url, globalThis.location?.href);
  if (place.protocol === "file:") return new Response(await readFile(place));
  let response;
  try {
    response = await fetcher(place, { credentials: "same-origin", signal });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new InferError(`${place} cannot be reached`, "fetch_error", {
      hint: "is the server running? `edge-infer serve`",
      details: { url: place.href },
      cause,
    });
  }
  if (!response.ok || !response.body) {
    const details = { url: place.href, status: response.status };
    throw new InferError(`${place} answers with status ${response.status}`, "fetch_error", { hint, details });
  }
  const file = place.pathname.split("/").pop() ?? "";
  let loaded = 0;
  const counted = response.body.pipeThrough(
    new TransformStream({
      transform(/** @type {Uint8Array} */ chunk, controller) {
        loaded += chunk.byteLength;
        onProgress?.({ phase, file, loaded, total: total || Math.max(loaded, announced(response)) });
        controller.enqueue(chunk);
      },
    }),
  );
  return new Response(counted, { headers: { "content-type": type ?? response.headers.get("content-type") ?? "" } });
}

/**
 * Download the bytes of a URL.
 *
 * @param {URL | string} url
 * @param {Parameters<typeof download>[1]} options
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function downloadBytes(url, options) {
  return new Uint8Array(await (await download(url, options)).arrayBuffer());
}

/**
 * @param {Response} response
 * @returns {number} Its length as the server announces it; 0 where it is compressed, and so of another length here.
 */
function announced(response) {
  return response.headers.has("content-encoding") ? 0 : Number(response.headers.get("content-length") ?? 0);
}

/**
 * @param {URL} url
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function readFile(url) {
  const fs = await import("node:fs/promises");
  return new Uint8Array(await fs.readFile(url));
}
