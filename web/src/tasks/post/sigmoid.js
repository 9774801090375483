/** The step `post.sigmoid`: logits to probabilities, each on its own. */

import { flat, floats } from "../values.js";
import { reader } from "./outputs.js";

/**
 * `1 / (1 + exp(-x))` in float64, rounded once to float32.
 *
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name }, place) {
  const read = reader(name, place, "post.sigmoid");
  return (value) => {
    const tensor = read(value);
    return floats(Float32Array.from(flat(tensor), sigmoid), tensor.shape);
  };
}

/** @param {number} logit @returns {number} `1 / (1 + exp(-logit))`, in the form that cannot overflow. */
export function sigmoid(logit) {
  if (logit >= 0) return 1 / (1 + Math.exp(-logit));
  const power = Math.exp(logit);
  return power / (1 + power);
}
