/** The step `tensor.reshape`: the same elements in another shape. */

import { EdgeInferError } from "../../errors.js";
import { shapeText, sizeOf } from "../../tensors.js";
import { shown } from "../words.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

const [MAX_RANK, MAX_DIM] = [8, 2 ** 28];

/**
 * It gives a tensor another shape, without the batch.
 *
 * @param {{shape: number[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the shape is not one to eight whole numbers.
 */
export function prepare({ shape }) {
  const fits = shape.every((dim) => Number.isInteger(dim) && dim >= 1 && dim <= MAX_DIM);
  if (!fits || shape.length < 1 || shape.length > MAX_RANK) {
    throw new EdgeInferError(
      `pipeline: the \`shape\` of \`tensor.reshape\` is ${shown(shape)}, expected 1 to ${MAX_RANK} whole numbers from 1 to ${MAX_DIM}`,
      "manifest_error",
      { hint: '"shape": [3, 224, 224], without the batch', details: { field: "shape" } },
    );
  }
  return (/** @type {Tensor} */ tensor) => {
    const [given, wanted] = [sizeOf(tensor.shape), sizeOf(shape)];
    if (given !== wanted) {
      throw new EdgeInferError(`a tensor of shape ${shapeText(tensor.shape)} has ${given} elements, and ${shapeText(shape)} has ${wanted}`, "input_error", {
        hint: "give an input of the length that the model was made for, or a step that fits it",
      });
    }
    return { ...tensor, shape: [...shape] };
  };
}
