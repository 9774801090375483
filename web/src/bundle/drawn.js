/**
 * Draw the values of random golden inputs, and pick the elements that golden examples keep of large outputs, as
 * `edge_infer.tensors.drawn` and `edge_infer.tensors.picked` do.
 */

import { arrayOver, nbytesOf, sizeOf } from "../tensors.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */

const CYCLE = 16381;
const MAX_BYTES = 2 ** 29;
const SEED = 2463534242;
const LOW_BYTES = 0x00ff00ff;
const NEVER = ["string", "bfloat16", "int4", "uint4"];

/**
 * Draw a tensor.
 *
 * @param {DType} dtype
 * @param {number[]} shape
 * @param {number} start Where in the cycle it starts.
 * @returns {Tensor}
 */
export function draw(dtype, shape, start) {
  if (NEVER.includes(dtype) || !(nbytesOf(dtype, shape) <= MAX_BYTES)) throw new TypeError(`a drawn tensor of ${dtype}[${shape}]`);
  const bytes = new Uint8Array(nbytesOf(dtype, shape));
  const data = arrayOver(dtype, bytes);
  const values = cycle(dtype);
  const count = sizeOf(shape);
  for (let i = 0; i < count; i++) data[i] = values[(start + i) % CYCLE];
  return { data, dtype, shape };
}

/**
 * @param {DType} dtype
 * @returns {(number | bigint)[]}
 */
function cycle(dtype) {
  let state = SEED | 0;
  const word = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
  const one = () => {
    if (dtype === "int8" || dtype === "uint8") return word() >>> 24;
    if (dtype === "int64" || dtype === "uint64") return BigInt(word() >>> 31);
    if (!dtype.startsWith("float")) return word() >>> 31;
    let pairs = 0;
    for (let i = 0; i < 3; i++) {
      const three = word();
      pairs += (three & LOW_BYTES) + ((three >>> 8) & LOW_BYTES);
    }
    return ((pairs & 0xffff) + (pairs >>> 16) - 1530) / 256;
  };
  const values = Array.from({ length: CYCLE }, one);
  return dtype === "float16" && !("Float16Array" in globalThis) ? values.map((value) => halfBits(Number(value))) : values;
}

/**
 * @param {number} value A multiple of 1/256 between -6 and 6: exact in half precision.
 * @returns {number} Its bits.
 */
function halfBits(value) {
  if (value === 0) return 0;
  const size = Math.abs(value);
  const exponent = Math.floor(Math.log2(size));
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | ((size / 2 ** exponent - 1) * 1024);
}

/**
 * Take evenly spread elements of a tensor.
 *
 * @param {Tensor} tensor
 * @param {number[]} part The shape to take.
 * @returns {Tensor}
 */
export function pick({ data, dtype, shape }, part) {
  const taken = part.map((count, axis) =>
    Array.from({ length: count }, (_, i) => (count > 1 ? Math.floor((i * (shape[axis] - 1)) / (count - 1)) : 0)),
  );
  let places = [0];
  for (const [axis, indices] of taken.entries()) places = places.flatMap((place) => indices.map((index) => place * shape[axis] + index));
  return { data: /** @type {any} */ (places.map((place) => data[place])), dtype, shape: part };
}
