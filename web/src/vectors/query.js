/** A query, encoded as `edge_infer/vectors/arithmetic.py` says: 8-bit numbers and their scale, and 1-bit codes. */

import { EdgeInferError } from "../errors.js";

/** @typedef {{floats: Float32Array, codes: Int8Array, factor: number}} Query */

/**
 * @param {ArrayLike<number>} vector
 * @param {number} dimension
 * @param {string} metric
 * @returns {Query}
 * @throws {EdgeInferError} `input_error`: it is of another length, has a number that is not finite, or is zero where it needs a direction.
 */
export function encodeQuery(vector, dimension, metric) {
  const floats = Float32Array.from(vector);
  if (floats.length !== dimension) {
    const hint = "use the model that the index was built by, or build another index";
    throw new EdgeInferError(`The vector has ${floats.length} numbers, the index takes ${dimension}`, "input_error", { hint, details: { expected: dimension, got: floats.length } });
  }
  if (!floats.every(Number.isFinite)) throw new EdgeInferError("The vector has a number that is not finite in float32", "input_error", { hint: "give numbers" });
  if (metric === "cosine") {
    let total = 0;
    for (const value of floats) total += value * value;
    if (total === 0) throw new EdgeInferError("The vector is zero and has no direction", "input_error", { hint: "give another one" });
    const length = Math.sqrt(total);
    for (let i = 0; i < dimension; i++) floats[i] = floats[i] / length;
  }
  let most = 0;
  for (const value of floats) most = Math.max(most, Math.abs(value));
  const factor = Math.fround(most / 127);
  const scale = factor || 1;
  const codes = Int8Array.from(floats, (value) => Math.max(-127, Math.min(127, roundHalfToEven(Math.fround(value / scale)))));
  return { floats, codes, factor };
}

/** @param {number} value @returns {number} */
function roundHalfToEven(value) {
  const rounded = Math.round(value); // halves go up
  return value - Math.floor(value) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

/**
 * @param {Float32Array} floats
 * @param {Float32Array} mean
 * @returns {Uint8Array} A bit for each number that is above the mean, filled up to whole 64 bits.
 */
export function codeOf(floats, mean) {
  const code = new Uint8Array(Math.ceil(floats.length / 64) * 8);
  floats.forEach((value, i) => value > mean[i] && (code[i >> 3] |= 1 << (i & 7)));
  return code;
}
