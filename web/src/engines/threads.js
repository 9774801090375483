/** Decide how many threads an engine has: the number asked for, or the number that this page can give. */

import { EdgeInferError } from "../errors.js";

/** The most threads that are taken unasked. */
const MAX_THREADS = 4;
const HEADERS = "serve it with `edge-infer serve`, which sends COOP and COEP headers, or ask for one thread";
const OWN_ORIGIN = "let the page's Content-Security-Policy say `worker-src 'self' blob:`, serve the engine's files from the page's own origin (`root`), or ask for one thread";
const OTHER_BROWSER = "take another browser, or ask for one thread";
let isWarned = false;

/**
 * Decide the threads of an engine. A page that is isolated and still has one thread only says why on the console, once.
 *
 * @param {number | undefined} wanted What the caller asks for.
 * @param {URL} script The engine's script, from `ownScript`: each of its threads is a worker that starts with it.
 * @returns {number} What is wanted; unless given 1 where the page has no threads, else half the processors, at most 4.
 * @throws {EdgeInferError} `unsupported`: more than one is wanted, and this page has no threads.
 */
export function threadsFor(wanted, script) {
  const missing = missingForThreads(script);
  if (wanted !== undefined) {
    if (wanted > 1 && missing) throw new EdgeInferError(`The engine cannot use ${wanted} threads: ${missing.why}`, "unsupported", { hint: missing.hint });
    return wanted;
  }
  if (globalThis.crossOriginIsolated !== true) return 1;
  const count = usual();
  if (count > 1 && missing) warnOfOneThread(missing.why, missing.hint);
  return missing ? 1 : count;
}

/**
 * Say what decided on the number of threads, for `report()`.
 *
 * @param {number | undefined} wanted What the caller asks for.
 * @param {URL} script The engine's script, from `ownScript`.
 * @returns {string}
 */
export function whyThreads(wanted, script) {
  if (wanted !== undefined) return "asked for";
  const missing = missingForThreads(script);
  if (missing) return `${missing.why}; ${missing.hint}`;
  if (globalThis.crossOriginIsolated !== true) return "rule: outside of pages more than one has to be asked for";
  return `rule: half of ${navigator.hardwareConcurrency} processors, from 1 to ${MAX_THREADS}`;
}

/**
 * Let an engine's script of another origin start threads: browsers start no worker of such a script, but of a copy.
 *
 * @param {URL} script
 * @param {number | undefined} wanted What the caller asks for.
 * @returns {Promise<URL>} Its copy, as an address of this page; the script itself where there is no use for one, or the page's
 *   policy starts no such worker.
 */
export async function ownScript(script, wanted) {
  const isOwn = !globalThis.location || script.origin === globalThis.origin;
  if (isOwn || !canShareMemory() || (wanted ?? usual()) < 2) return script;
  try {
    const [response] = await Promise.all([fetch(script), startEmptyWorker()]);
    if (!response.ok) return script; // told where it is imported
    return new URL(blobOf(await response.text()));
  } catch {
    return script;
  }
}

/** @returns {Promise<void>} Rejected where the page's policy starts no worker of such an address. */
async function startEmptyWorker() {
  const address = blobOf("postMessage(0);");
  const worker = new Worker(address, { type: "module" });
  try {
    await new Promise((resolve, reject) => {
      worker.onmessage = resolve;
      worker.onerror = reject;
    });
  } finally {
    worker.terminate();
    URL.revokeObjectURL(address);
  }
}

/** @param {string} code */
function blobOf(code) {
  return URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
}

/** @returns {number} How many threads are taken unasked, where there are any. */
export function usual() {
  return Math.max(1, Math.min(MAX_THREADS, navigator.hardwareConcurrency >> 1));
}

/**
 * Allow the engine to start its threads where the page asks for Trusted Types, in a worker of ours: their default policy lets
 * this script through and nothing else.
 *
 * @param {URL} script
 */
export function allowThreadScript({ href }) {
  const { trustedTypes } = /** @type {any} */ (globalThis);
  if (!trustedTypes || trustedTypes.defaultPolicy || globalThis.document) return;
  try {
    trustedTypes.createPolicy("default", { createScriptURL: (/** @type {string} */ given) => (given === href ? given : null) });
  } catch {
    // The page's policy names no such one: the engine then has one thread, and says so.
  }
}

/**
 * @param {unknown} cause Why an engine did not start with threads.
 * @returns {string} What to do: about the page's policy only where the browser names it.
 */
export function hintForStart(cause) {
  const said = String(cause);
  if (/trusted ?(script|types)/i.test(said)) return "let the page's Content-Security-Policy say `trusted-types edge-infer default`";
  if (/security ?policy|\bCSP\b|worker-src/i.test(said)) return "let the page's Content-Security-Policy say `worker-src 'self' blob:`";
  if (/memory|allocat/i.test(said)) return "close other pages, or ask for one thread";
  return "ask for one thread, which needs none of this";
}

/** @param {string} why Said on the console, once. @param {string} hint */
export function warnOfOneThread(why, hint) {
  if (isWarned) return;
  isWarned = true;
  console.warn(`edge-infer runs with one thread: ${why}; ${hint}`);
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
  // Browsers start no worker of another origin's script, and a policy of the page may forbid that of a copy.
  if (globalThis.location && script.origin !== globalThis.origin) {
    return { why: `the engine's script is of another origin, ${script.origin}`, hint: OWN_ORIGIN };
  }
  return undefined;
}
