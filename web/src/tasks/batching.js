/** The batch's dimension: tensors of several raw inputs as one, and the row of one of them. */

import { EdgeInferError } from "../errors.js";
import { DTYPES, shapeText, sizeOf } from "../tensors.js";
import { specText } from "./place.js";
import { joined } from "./values.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */

/** @param {Tensor} tensor @param {number} index @returns {Tensor} A row, without the first dimension. */
export function rowOf({ data, dtype, shape }, index) {
  const rest = shape.slice(1);
  if (DTYPES[dtype].bits === 4 && sizeOf(rest) % 2) {
    throw new EdgeInferError(`an output of ${dtype} has rows that end inside a byte`, "unsupported", { hint: "give the inputs one by one" });
  }
  const size = DTYPES[dtype].bits === 4 ? sizeOf(rest) / 2 : sizeOf(rest);
  return { data: data.slice(index * size, (index + 1) * size), dtype, shape: rest };
}

/**
 * @param {Tensor[]} tensors
 * @param {TensorSpec} spec
 * @param {number} pad
 * @returns {Tensor} The tensors of several raw inputs as the model takes them.
 * @throws {EdgeInferError} `input_error`: they do not fit the model's input.
 */
export function batched(tensors, spec, pad) {
  const [first] = tensors;
  if (tensors.length === 1 && first.shape.length === spec.shape.length) return first;
  if (first.shape.length + 1 !== spec.shape.length) {
    const fixed = spec.shape.filter((dim) => typeof dim === "number");
    if (tensors.length === 1 && fixed.length === spec.shape.length && sizeOf(fixed) === sizeOf(first.shape)) return { ...first, shape: fixed };
    throw new EdgeInferError(`the steps make a tensor of shape ${shapeText(first.shape)}, which input \`${specText(spec)}\` does not take`, "input_error", {
      hint: "change the definition in manifest.json, or the step before the last",
    });
  }
  if (tensors.every(({ shape }) => shape.join() === first.shape.join())) {
    return { data: joined(tensors), dtype: first.dtype, shape: [tensors.length, ...first.shape] };
  }
  if (tensors.some(({ shape }) => shape.length !== 1)) {
    throw new EdgeInferError("inputs of different sizes cannot be run at once", "execution_error", { hint: "give them one by one" });
  }
  const longest = tensors.reduce((most, { shape }) => Math.max(most, shape[0]), 0);
  const array = /** @type {any} */ (first.data.constructor);
  const filled = new array(tensors.length * longest).fill(typeof first.data[0] === "bigint" || array === BigInt64Array ? BigInt(pad) : pad);
  tensors.forEach(({ data }, i) => filled.set(data, i * longest));
  return { data: filled, dtype: first.dtype, shape: [tensors.length, longest] };
}
