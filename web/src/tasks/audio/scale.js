/** The step `audio.scale`: a sound made louder or softer. */

/** @typedef {import("./sound.js").Sound} Sound */

/**
 * It gives the sound with other levels, each sample rounded once to float32. A factor of 32768 gives the levels of 16-bit
 * samples, which Kaldi's features are made of; `highest` and a clip of 1 are the rule of MLPerf Tiny's keyword spotting. A
 * sound of silence stays as it is.
 *
 * @param {{factor: number, by: "none" | "loudest" | "highest", clip: number | null}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ factor, by, clip }) {
  return (/** @type {Sound} */ { samples, rate }) => {
    let divisor = by === "none" ? 1 : -Infinity;
    if (by !== "none") for (const one of samples) divisor = Math.max(divisor, by === "loudest" ? Math.abs(one) : one);
    const scale = divisor > 0 ? divisor : 1;
    const made = samples.map((one) => (one * factor) / scale);
    return { samples: clip === null ? made : made.map((one) => Math.min(Math.max(one, -clip), clip)), rate };
  };
}
