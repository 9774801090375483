/** The step `tensor.normalize`: the mean of the training data taken from each element, and the rest divided by its spread. */

import { flat, floats } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * It gives `(x - mean) / std` of each element, in float64 and rounded once to float32.
 *
 * @param {{mean: number, std: number}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ mean, std }) {
  return (/** @type {Tensor} */ tensor) =>
    floats(
      Float32Array.from(flat(tensor), (one) => (one - mean) / std),
      tensor.shape,
    );
}
