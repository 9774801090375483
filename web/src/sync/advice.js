/** Ask a store's server whether too many devices failed with a version that comes in steps; its answer can only make a page wait. */

import { fetchFile } from "./read.js";

const MAX_BYTES = 2 ** 20;

/**
 * @param {string} at The store's URL.
 * @param {string} model
 * @param {number} sequence The version's.
 * @param {number} stage The number of the roll-out's step.
 * @param {AbortSignal} [signal]
 * @returns {Promise<boolean>} False where the server cannot be asked, or is one of static files: the store's signature counts.
 */
export async function isHalted(at, model, sequence, stage, signal) {
  try {
    const bytes = await fetchFile(new URL(`/sync/v1/advice?model=${encodeURIComponent(model)}`, at), MAX_BYTES, signal);
    const { halts } = JSON.parse(new TextDecoder().decode(bytes ?? undefined));
    return halts.some((/** @type {any} */ halt) => halt.model === model && halt.sequence === sequence && halt.stage === stage);
  } catch {
    signal?.throwIfAborted();
    return false;
  }
}
