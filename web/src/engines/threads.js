/** Decide how many threads an engine has: the number asked for, or the number that this page can give. */

import { InferError } from "../errors.js";

/** The most threads that are taken unasked. */
const MAX_THREADS = 4;
const HEADERS = "serve it with `edge-infer serve`, which sends COOP and COEP headers, or ask for one thread";
const OWN_ORIGIN = "serve the engine's files from the page's own origin (`root`), or ask for one thread";
const OTHER_BROWSER = "take another browser, or ask for one thread";
let isWarned = false;

/**
 * Decide the threads of an engine. A page that is isolated and still has one thread only says why on the console, once.
 *
 * @param {number | undefined} wanted What the caller asks for.
 * @param {URL} script The engine's script: each of its threads is a worker that starts with it.
 * @returns {number} What is wanted; unless given 1 where the page has no threads, else half the processors, at most 4.
 * @throws {InferError} `unsupported`: more than one is wanted, and this page has no threads.
 */
export function threadsFor(wanted, script) {
  const missing = missingForThreads(script);
  if (wanted !== undefined) {
    if (wanted > 1 && missing) throw new InferError(`The engine cannot use ${wanted} threads: ${missing.why}`, "unsupported", { hint: missing.hint });
    return wanted;
  }
  if (globalThis.crossOriginIsolated !== true) return 1;
  const count = Math.max(1, Math.min(MAX_THREADS, navigator.hardwareConcurrency >> 1));
  if (count > 1 && missing && !isWarned) {
    isWarned = true;
    console.warn(`edge-infer runs with one thread: ${missing.why}; ${missing.hint}`);
  }
  return missing ? 1 : count;
}

/** @returns {boolean} Whether this page, or the page of this worker, may share memory between threads. */
export function canShareMemory() {
  return globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer !== "undefined";
}

/**
 * @param {URL} script
 * @returns {{why: string, hint: string} | undefined} What this page lacks; undefined where an engine can have threads.
 */
function missingForThreads(script) {
  if (globalThis.crossOriginIsolated === false) return { why: "the page is not cross-origin isolated", hint: HEADERS };
  // GNOME Web: the page is isolated, and the name is missing.
  if (typeof SharedArrayBuffer === "undefined") return { why: "the browser has no SharedArrayBuffer", hint: OTHER_BROWSER };
  // Browsers start no worker of another origin's script.
  if (globalThis.location && script.origin !== globalThis.origin) {
    return { why: `the engine's script is of another origin, ${script.origin}`, hint: OWN_ORIGIN };
  }
  return undefined;
}
