/** Flat numbers of tensors. The same as `edge_infer.tasks.values`. */

import { DTYPES, bytesOver, checkInput, sizeOf } from "../tensors.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */

/**
 * @param {Tensor} tensor
 * @returns {ArrayLike<number>} Its elements as numbers, in the order of its rows; not copied where its type allows it.
 */
export function flat({ data, dtype, shape }) {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) return Array.from(data, Number);
  if (dtype === "float16" && data instanceof Uint16Array) return Float32Array.from(data, ofFloat16);
  if (dtype === "bfloat16") {
    const wide = Uint32Array.from(/** @type {Uint16Array} */ (data), (bits) => bits << 16);
    return new Float32Array(wide.buffer);
  }
  if (dtype === "int4" || dtype === "uint4") {
    const packed = /** @type {Uint8Array} */ (data);
    const sign = dtype === "int4" ? 8 : 0;
    return Int8Array.from({ length: sizeOf(shape) }, (_, i) => (((packed[i >> 1] >> (4 * (i & 1))) & 15) ^ sign) - sign);
  }
  return /** @type {ArrayLike<number>} */ (/** @type {unknown} */ (data));
}

/** @param {number} bits @returns {number} */
function ofFloat16(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size =
    exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}

/**
 * @param {ArrayLike<number>} values
 * @param {number[]} shape
 * @returns {Tensor} Of float32, each number rounded once.
 */
export function floats(values, shape) {
  return { data: values instanceof Float32Array ? values : Float32Array.from(values), dtype: "float32", shape };
}

/**
 * @param {number[]} values
 * @param {DType} dtype
 * @param {number[]} shape
 * @returns {Tensor}
 * @throws {import("../errors.js").EdgeInferError} `input_error`: a number does not fit the type.
 */
export function packed(values, dtype, shape) {
  const { bytes } = checkInput({ name: "value", dtype, shape }, { data: values, shape });
  return { data: over(dtype, /** @type {Uint8Array} */ (bytes)), dtype, shape };
}

/** @param {DType} dtype @param {Uint8Array} bytes @returns {import("../tensors.js").NumberArray} */
function over(dtype, bytes) {
  const array = /** @type {any} */ (DTYPES[dtype].arrays[0]);
  return new array(bytes.buffer, bytes.byteOffset, bytes.byteLength / array.BYTES_PER_ELEMENT);
}

/**
 * @param {Tensor} tensor
 * @returns {ArrayLike<number>[]} The elements along its last axis, one list for each place of the others.
 */
export function rows(tensor) {
  const [values, width] = [flat(tensor), tensor.shape.length ? /** @type {number} */ (tensor.shape.at(-1)) : 1];
  if (!width) return [];
  return Array.from({ length: sizeOf(tensor.shape) / width }, (_, i) => part(values, i * width, (i + 1) * width));
}

/**
 * @param {ArrayLike<number>} values
 * @param {number} start
 * @param {number} end
 * @returns {ArrayLike<number>} Some of them; of a typed array not copied.
 */
export function part(values, start, end) {
  return ArrayBuffer.isView(values) ? /** @type {Float32Array} */ (values).subarray(start, end) : /** @type {number[]} */ (values).slice(start, end);
}

/** @param {Tensor} tensor @returns {boolean} Whether its elements are numbers. */
export function isTensor(/** @type {any} */ tensor) {
  return tensor !== null && typeof tensor === "object" && "dtype" in tensor && "shape" in tensor && "data" in tensor;
}

/**
 * Join the data of tensors of one type.
 *
 * @param {Tensor[]} tensors
 * @returns {import("../tensors.js").TensorData}
 */
export function joined(tensors) {
  const [first] = tensors;
  if (tensors.length === 1) return first.data;
  if (Array.isArray(first.data)) return tensors.flatMap(({ data }) => /** @type {string[]} */ (data));
  const parts = tensors.map(({ data }) => bytesOver(/** @type {import("../tensors.js").NumberArray} */ (data)));
  const bytes = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of parts) {
    bytes.set(one, at);
    at += one.length;
  }
  const array = /** @type {any} */ (first.data.constructor);
  return new array(bytes.buffer);
}

/**
 * Round to the nearest whole number, half to even, as Python's `round` does; `Math.round` rounds half up.
 *
 * @param {number} value
 * @returns {number}
 */
export function roundEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

/**
 * @param {number} count
 * @param {(index: number) => number} scoreOf
 * @returns {number[]} The indices from the highest score to the lowest; of equal scores the lower index first.
 */
export function byScore(count, scoreOf) {
  return Array.from({ length: count }, (_, i) => i).sort((one, other) => scoreOf(other) - scoreOf(one));
}

/**
 * @param {ArrayLike<number>} scores
 * @param {number} [start]
 * @param {number} [end]
 * @returns {number} Where the highest is; of equal ones the first.
 */
export function best(scores, start = 0, end = scores.length) {
  let found = start;
  for (let i = start + 1; i < end; i++) if (scores[i] > scores[found]) found = i;
  return found;
}
