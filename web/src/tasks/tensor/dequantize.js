/** The step `tensor.dequantize`: a quantized output to floats. */

import { flat, floats } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * One output is replaced by its floats, `(x - zero_point) * scale`; an output that is float already is not changed.
 *
 * @param {{tensor: string | null, scale: number, zero_point: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: given, scale, zero_point: zero }, place) {
  const name = place.output(given, "tensor.dequantize");
  return (/** @type {Record<string, Tensor>} */ outputs) => {
    const tensor = outputs[name];
    if (tensor.dtype.startsWith("float")) return outputs;
    return { ...outputs, [name]: floats(Float32Array.from(flat(tensor), (step) => (step - zero) * scale), tensor.shape) };
  };
}
