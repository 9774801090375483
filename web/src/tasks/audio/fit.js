/** The step `audio.fit`: a sound of the length that the model takes. */

/** @typedef {import("./sound.js").Sound} Sound */

/**
 * The end of a longer sound is cut off; silence is added to a shorter one.
 *
 * @param {{samples: number, pad: boolean}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ samples: length, pad }) {
  return (/** @type {Sound} */ { samples, rate }) => {
    if (!pad || samples.length >= length) return { samples: samples.subarray(0, length), rate };
    const filled = new Float32Array(length);
    filled.set(samples);
    return { samples: filled, rate };
  };
}
