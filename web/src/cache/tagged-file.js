/**
 * Keep a file that no manifest lists, such as a bare model: its address, and the tag that its server gives its version, tell
 * whether what was kept is still the file. A server that tells neither `ETag` nor `Last-Modified` has none that is kept.
 */

import { StallTimer, downloadBytes } from "../fetch/download.js";
import { sha256 } from "../fetch/sha256.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {{tag: string, size: number, sha256: string}} Known What is remembered of a file by its address. */

/**
 * Return a file: kept from an earlier visit, where its server says that it is the same or cannot be reached; else downloaded.
 *
 * @param {Store} store
 * @param {URL} url
 * @param {Parameters<typeof downloadBytes>[1]} options
 * @returns {Promise<{bytes: Uint8Array<ArrayBuffer>, isKept: boolean, isOffline: boolean}>}
 * @throws {import("../errors.js").EdgeInferError} `fetch_error`: it is not there, or cannot be reached and was not kept.
 */
export async function taggedFile(store, url, options) {
  const name = `tag-${await sha256(new TextEncoder().encode(url.href))}`;
  const path = url.pathname.split("/").pop() ?? "";
  const known = await recalled(store, name);
  const tag = known && (await currentTag(url, options));
  if (known && (tag === null || tag === known.tag)) {
    return { ...(await store.file(url, { path, ...known }, url.href, options)), isOffline: tag === null };
  }
  let found = "";
  /** @type {typeof fetch} */
  const fetcher = async (place, more) => {
    const response = await fetch(place, { ...more, cache: "no-cache" });
    found = tagOf(response);
    return response;
  };
  const bytes = await downloadBytes(url, { ...options, fetcher });
  if (found) {
    const entry = { path, size: bytes.length, sha256: await sha256(bytes) };
    await store.put(entry, bytes, url.href);
    await store.remember(name, new TextEncoder().encode(JSON.stringify({ tag: found, size: entry.size, sha256: entry.sha256 })));
  }
  return { bytes, isKept: false, isOffline: false };
}

/** @param {Store} store @param {string} name @returns {Promise<Known | undefined>} */
async function recalled(store, name) {
  const bytes = await store.recall(name);
  try {
    return bytes ? JSON.parse(new TextDecoder().decode(bytes)) : undefined;
  } catch {
    return undefined; // it was cut short while it was written
  }
}

/**
 * @param {URL} url
 * @param {Parameters<typeof downloadBytes>[1]} options
 * @returns {Promise<string | null>} The tag of the version that the server has; empty where it tells none, null where it cannot be reached.
 */
async function currentTag(url, { headers, signal, stallMs }) {
  const timer = new StallTimer(signal, stallMs);
  try {
    const response = await timer.wait(() =>
      fetch(url, { method: "HEAD", credentials: "same-origin", cache: "no-cache", headers, signal: timer.signal }),
    );
    return response.ok ? tagOf(response) : "";
  } catch {
    signal?.throwIfAborted();
    return null;
  }
}

/** @param {Response} response @returns {string} */
function tagOf({ headers }) {
  return headers.get("etag") ?? headers.get("last-modified") ?? "";
}
