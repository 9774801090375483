/** Start the workers of this package, wherever its modules lie and whatever has bundled them. */

import { blobOf, startOwn, workerOf } from "./own-worker.js";

export { forbiddenBy, hasWorkers } from "./own-worker.js";

/** @typedef {"worker.js" | "python-worker.js" | "generation-worker.js"} Script */

/**
 * @param {Script} script
 * @param {string} name The worker's name, which the browser's tools show.
 * @returns {Worker}
 * @throws {EdgeInferError} `unsupported`: there are no workers here, or the page's policy allows none.
 */
export function startWorker(script, name) {
  return startOwn(() => ownWorker(script, name), script, name);
}

/**
 * Start a worker of the modules that `edge-infer-files` has copied: where a bundler has written no file for it.
 *
 * @param {Script} script
 * @param {string} name
 * @param {string} root
 * @returns {Worker}
 */
export function startCopiedWorker(script, name, root) {
  const address = new URL(`src/page/${script}`, root).href;
  return workerOf(new URL(address).origin === globalThis.origin ? address : blobOf(address), name);
}

/** @param {Script} script @param {string} name @returns {Worker} */
function ownWorker(script, name) {
  // Expressions of this form: what bundles a page finds the workers by them.
  if (script === "generation-worker.js") return new Worker(new URL("./generation-worker.js", import.meta.url), { type: "module", name });
  return script === "worker.js"
    ? new Worker(new URL("./worker.js", import.meta.url), { type: "module", name })
    : new Worker(new URL("./python-worker.js", import.meta.url), { type: "module", name });
}
