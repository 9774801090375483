/** The step `tensor.quantize`: floats to the steps of a quantized input. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";
import { flat, roundEven } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */
/** @type {Record<string, [typeof Int8Array | typeof Uint8Array | typeof Int16Array, number, number]>} */
const RANGES = { int8: [Int8Array, -128, 127], uint8: [Uint8Array, 0, 255], int16: [Int16Array, -32768, 32767] };

/**
 * `x / scale + zero_point`, rounded half to even and clipped. Steps before it make floats.
 *
 * @param {{scale: number, zero_point: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the input is not int8, uint8 or int16.
 */
export function prepare({ scale, zero_point: zero }, place) {
  const spec = place.spec();
  if (!Object.hasOwn(RANGES, spec.dtype)) {
    throw new EdgeInferError(`pipeline: \`tensor.quantize\` makes int8, uint8 or int16, and input \`${specText(spec)}\` is not`, "manifest_error", {
      hint: "leave the step out: the one before it makes floats",
    });
  }
  const [array, low, high] = RANGES[spec.dtype];
  const apply = (/** @type {Tensor} */ tensor) => {
    const numbers = flat(tensor);
    const data = new array(numbers.length);
    for (let i = 0; i < data.length; i++) data[i] = Math.min(Math.max(roundEven(numbers[i] / scale) + zero, low), high);
    return { data, dtype: spec.dtype, shape: tensor.shape };
  };
  return Object.assign(apply, { takes: { ...spec, dtype: "float32" } });
}
