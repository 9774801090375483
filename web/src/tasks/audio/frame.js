/** The step `audio.frame`: a sound cut into the frames that a streamed model takes one after the other. */

import { floats } from "../values.js";

/** @typedef {import("./sound.js").Sound} Sound */

/**
 * It gives a list of tensors [context + samples], the last filled with silence.
 *
 * @param {{samples: number, context: number}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ samples: length, context }) {
  return (/** @type {Sound} */ { samples }, item) => {
    item.frame = length;
    const count = Math.ceil(samples.length / length);
    const all = new Float32Array(context + count * length);
    if (item.before) all.set(item.before);
    all.set(samples, context);
    return Array.from({ length: count }, (_, i) => floats(all.slice(i * length, i * length + context + length), [context + length]));
  };
}
