/** Start the threads of a decoder. */

import { startOwn } from "./own-worker.js";

const [SCRIPT, NAME] = ["decoder-worker.js", "edge-infer decoder"];

/** @returns {Worker} A thread that waits for what it joins. */
export function startDecoderThread() {
  return startOwn(() => new Worker(new URL("./decoder-worker.js", import.meta.url), { type: "module", name: NAME }), SCRIPT, NAME);
}
