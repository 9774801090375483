/** The step `audio.normalize`: samples to a tensor, with mean 0 and variance 1 where the model wants that. */

import { floats } from "../values.js";
import { exactSum } from "./exact-sum.js";

/** @typedef {import("./sound.js").Sound} Sound */

/**
 * It gives a tensor [samples] of float32. `mean_variance` is `(x - mean) / sqrt(variance + epsilon)`, the rule of
 * transformers' `Wav2Vec2FeatureExtractor`; `peak` divides by the loudest sample.
 *
 * @param {{method: "none" | "mean_variance" | "peak", epsilon: number}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ method, epsilon }) {
  return (/** @type {Sound} */ { samples }) => {
    const shape = [samples.length];
    if (method === "mean_variance") {
      const mean = exactSum(samples) / samples.length;
      const variance = exactSum(Float64Array.from(samples, (one) => (one - mean) * (one - mean))) / samples.length;
      const divisor = Math.sqrt(variance + epsilon);
      return floats(samples.map((one) => (one - mean) / divisor), shape);
    }
    if (method === "peak") {
      const peak = samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0) || 1;
      return floats(samples.map((one) => one / peak), shape);
    }
    return floats(samples, shape);
  };
}
