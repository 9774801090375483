/** The output that a step after the model reads. */

import { isTensor } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * It is the output that the step names, or the only one, where the step is the first; else what the step before gave.
 *
 * @param {string | null} name The output's name in the definition; null where it names none.
 * @param {import("../place.js").Place} place
 * @param {string} step The step's name, for errors.
 * @returns {(value: any) => Tensor} The function that gives the tensor a step works on.
 * @throws {import("../../errors.js").EdgeInferError} `manifest_error`: the model has no such output.
 */
export function reader(name, place, step) {
  if (name !== null) place.output(name, step);
  return (value) => (isTensor(value) ? value : value[place.output(name, step)]);
}
