/** Fetch small files of a store, up to a size limit. */

import { EdgeInferError } from "../errors.js";

const TIMEOUT_MS = 30_000;

/**
 * @param {URL} url
 * @param {number} limit
 * @param {AbortSignal} [signal]
 * @returns {Promise<Uint8Array<ArrayBuffer> | null>} Null where there is no such file.
 * @throws {EdgeInferError} `fetch_error`: it cannot be reached, has more bytes than the limit, or is a page of HTML.
 */
export async function fetchFile(url, limit, signal) {
  const timer = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const response = await fetch(url, { cache: "no-store", credentials: "same-origin", signal: signal ? AbortSignal.any([signal, timer]) : timer });
    if (response.status === 404 || response.status === 403) return null;
    if (!response.ok || !response.body || /^text\/html/.test(response.headers.get("content-type") ?? "")) {
      await response.body?.cancel();
      const what = response.ok ? "with an HTML page" : `with status ${response.status}`;
      throw new EdgeInferError(`${url} answers ${what}`, "fetch_error", {
        hint: "is this the store's address? a login page in between answers so too",
        details: { url: url.href, status: response.status },
      });
    }
    return await limited(response.body, url, limit);
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof EdgeInferError) throw cause;
    throw new EdgeInferError(`${url} cannot be reached`, "fetch_error", { hint: "is the server running?", details: { url: url.href }, cause });
  }
}

/**
 * @param {ReadableStream<Uint8Array>} body
 * @param {URL} url
 * @param {number} limit
 */
async function limited(body, url, limit) {
  const pieces = [];
  let size = 0;
  const reader = body.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > limit) {
      await reader.cancel();
      throw new EdgeInferError(`${url} has more than ${limit} bytes`, "fetch_error", { details: { url: url.href, status: 200 } });
    }
    pieces.push(value);
  }
  return new Uint8Array(await new Blob(/** @type {BlobPart[]} */ (pieces)).arrayBuffer());
}
