/** The step `tensor.frames`: a tensor cut into the frames that a streamed model takes one after the other. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * It cuts [rows, ...] into tensors of `rows` rows each; what is left at the end is dropped.
 *
 * @param {{rows: number, samples: number}} parameters `samples`: those of a sound that a row stands for.
 * @returns {import("../item.js").Apply}
 */
export function prepare({ rows, samples }) {
  return (/** @type {Tensor} */ tensor, item) => {
    const count = tensor.shape.length ? Math.floor(tensor.shape[0] / rows) : 0;
    if (count < 1) {
      throw new EdgeInferError(`a tensor of shape ${shapeText(tensor.shape)} is too short: a frame takes ${rows} rows`, "input_error", {
        hint: "give a longer input",
      });
    }
    item.frame = rows * samples;
    const shape = [rows, ...tensor.shape.slice(1)];
    const data = /** @type {Float32Array} */ (tensor.data);
    const size = shape.reduce((all, dim) => all * dim, 1);
    return Array.from({ length: count }, (_, i) => ({ ...tensor, data: data.slice(i * size, (i + 1) * size), shape }));
  };
}
