/** Update a model of a store again and again: when its server announces a version, else in intervals that grow with failures. */

import { EdgeInferError } from "../errors.js";

/** @typedef {import("../sync/pull.js").Update} Update */
/**
 * @typedef {object} FollowOptions
 * @property {number} [intervalS] The mean time between two looks; 60 s unless given. Each wait is between half and one and
 *   a half of it, and longer after failures.
 * @property {boolean} [events] Whether to listen to the server's events; it does unless false.
 * @property {(update: Update) => void} [onUpdate] Told each change.
 * @property {(error: unknown) => void} [onError] Told each failure.
 */

const MAX_BACKOFF = 32;
// The clients of a server that published at this moment come within this time.
const SPREAD_MS = 1000;
// A browser's timer of more fires at once.
const MAX_WAIT_MS = 2 ** 31 - 1;

/**
 * @param {() => Promise<Update>} look
 * @param {string} address The model's address; its server may have events.
 * @param {FollowOptions} options
 * @returns {() => void} Ends it.
 */
export function follow(look, address, { intervalS = 60, events = true, onUpdate, onError }) {
  let [failures, isEnded, isBusy, isAsked] = [0, false, false, false];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const source = events && globalThis.EventSource ? new EventSource(new URL("/sync/v1/events", address)) : undefined;
  source?.addEventListener("timestamp", () => wait(Math.random() * SPREAD_MS));
  const wait = (/** @type {number} */ milliseconds) => {
    clearTimeout(timer);
    if (isBusy) isAsked = true;
    else if (!isEnded) timer = setTimeout(run, Math.min(milliseconds, MAX_WAIT_MS));
  };
  const run = async () => {
    [isBusy, isAsked] = [true, false];
    try {
      const update = await look();
      failures = 0;
      if (update.changed && !isEnded) onUpdate?.(update);
    } catch (error) {
      const isInOrder = error instanceof EdgeInferError && error.code === "not_released"; // the version is for others
      failures = isInOrder ? 0 : failures + 1;
      if (!isEnded) onError?.(error);
    } finally {
      isBusy = false;
      const pause = intervalS * Math.min(2 ** failures, MAX_BACKOFF) * (0.5 + Math.random());
      wait(isAsked ? Math.random() * SPREAD_MS : pause * 1000);
    }
  };
  wait(0);
  return () => {
    isEnded = true;
    clearTimeout(timer);
    source?.close();
  };
}
