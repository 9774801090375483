/** The step `tensor.fit`: a tensor with as many rows as the model takes. */

import { EdgeInferError } from "../../errors.js";
import { shapeText, sizeOf } from "../../tensors.js";
import { flat, floats } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

const MAX_ELEMENTS = 2 ** 28;

/**
 * It cuts the last rows of [rows, ...] off, or adds rows of one value.
 *
 * @param {{rows: number, value: number}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ rows, value }) {
  return (/** @type {Tensor} */ tensor) => {
    const width = tensor.shape[0] ? sizeOf(tensor.shape) / tensor.shape[0] : 0;
    if (tensor.dtype !== "float32" || !width || rows * width > MAX_ELEMENTS) {
      throw new EdgeInferError(`a tensor of ${tensor.dtype} and shape ${shapeText(tensor.shape)} cannot be made ${rows} rows long`, "input_error", {
        hint: "`tensor.fit` takes float32 [rows, ...]: put it before tensor.quantize",
      });
    }
    const made = new Float32Array(rows * width).fill(value);
    made.set(/** @type {Float32Array} */ (flat(tensor)).subarray(0, made.length));
    return floats(made, [rows, ...tensor.shape.slice(1)]);
  };
}
