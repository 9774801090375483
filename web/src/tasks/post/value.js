/** The step `post.value`: the one number that a model gives, such as a regression's. */

import { EdgeInferError } from "../../errors.js";
import { flat } from "../values.js";
import { reader } from "./outputs.js";

/**
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name }, place) {
  const read = reader(name, place, "post.value");
  return (value) => {
    const numbers = flat(read(value));
    if (numbers.length === 1) return numbers[0];
    throw new EdgeInferError(`the model gives ${numbers.length} numbers, expected 1`, "input_error", { hint: '{"step": "post.tensor"}' });
  };
}
