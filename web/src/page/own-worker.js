/** Start a worker whose script a bundler may have moved, wherever this package lies and whatever the page's policy asks. */

import { EdgeInferError } from "../errors.js";
import { oneFile } from "../fetch/root.js";

/** @typedef {() => Worker} Own Starts it by an expression that bundlers find. */

// Its name in a page's Content-Security-Policy: `trusted-types edge-infer`.
const POLICY = "edge-infer";
/** @type {{createScriptURL: (address: string) => string} | undefined} */
let policy;

/** The directive of the page's policy that has forbidden a worker. */
let forbidden = "";
let isWatching = false;

/** @returns {string} The directive of the page's Content-Security-Policy that has forbidden a worker; empty where none has. */
export function forbiddenBy() {
  return forbidden;
}

function watchPolicy() {
  if (isWatching) return;
  isWatching = true;
  globalThis.addEventListener?.("securitypolicyviolation", (event) => {
    const { effectiveDirective } = /** @type {SecurityPolicyViolationEvent} */ (event);
    if (effectiveDirective === "worker-src") forbidden = effectiveDirective;
  });
}

/** @returns {boolean} Whether this thread can start workers: a service worker and Node cannot. */
export function hasWorkers() {
  // onnxruntime-web puts Node's own kind of worker there, which has `ref`.
  return typeof Worker !== "undefined" && !("ref" in Worker.prototype);
}

/**
 * @param {Own} own
 * @param {string} script Its file in this folder.
 * @param {string} name The worker's name, which the browser's tools show.
 * @returns {Worker}
 * @throws {EdgeInferError} `unsupported`: there are no workers here, or the page's policy allows none.
 */
export function startOwn(own, script, name) {
  if (!hasWorkers()) {
    throw new EdgeInferError("This needs a worker, and none can be started here", "unsupported", {
      hint: "call it in a page or in a dedicated worker: a service worker and Node have no workers of this kind",
    });
  }
  watchPolicy();
  const inOne = oneFile.address && inFile(script);
  try {
    return inOne ? new Worker(inOne, { type: "module", name }) : own();
  } catch (error) {
    const isForeign = error instanceof DOMException && error.name === "SecurityError";
    if (!isForeign && !(error instanceof TypeError)) throw error;
    // The page takes no plain address where it asks for Trusted Types; and the modules may be of another origin, such as a CDN:
    // a worker's first script may not be, but what it imports may.
    if (isForeign) return workerOf(blobOf(inOne || import.meta.url.replace(/[^/]*$/, script)), name);
    return workerOf(inOne || addressOf(own), name);
  }
}

/** @param {string} script @returns {string} The one file, told which worker it is. */
function inFile(script) {
  return `${oneFile.address}#edge-infer/${script}`;
}

/**
 * @param {Own} own
 * @returns {string} The address that a bundler has given its script.
 */
function addressOf(own) {
  const { Worker: real } = globalThis;
  let address = "";
  class Probe {
    /** @param {URL | string} given */
    constructor(given) {
      address = new URL(given, globalThis.location?.href).href;
    }
  }
  try {
    globalThis.Worker = /** @type {any} */ (Probe);
    own();
  } finally {
    globalThis.Worker = real;
  }
  return address;
}

/** @param {string} address @returns {string} A script of this origin that imports the one of another. */
export function blobOf(address) {
  return URL.createObjectURL(new Blob([`import ${JSON.stringify(address)};`], { type: "text/javascript" }));
}

/** @param {string} address @param {string} name @returns {Worker} */
export function workerOf(address, name) {
  const { trustedTypes } = /** @type {any} */ (globalThis);
  try {
    policy ??= trustedTypes?.createPolicy(POLICY, { createScriptURL: (/** @type {string} */ given) => given });
    const worker = new Worker(policy?.createScriptURL(address) ?? address, { type: "module", name });
    // Its first message says that it has started, and needs the address no more.
    if (address.startsWith("blob:")) for (const kind of ["message", "error"]) worker.addEventListener(kind, () => URL.revokeObjectURL(address), { once: true });
    return worker;
  } catch (cause) {
    throw new EdgeInferError(`A worker cannot be started: ${cause}`, "unsupported", {
      hint: `let the page's Content-Security-Policy say \`trusted-types ${POLICY}\` and \`worker-src 'self' blob:\``,
      cause,
    });
  }
}
