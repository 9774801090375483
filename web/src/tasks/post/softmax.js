/** The step `post.softmax`: logits to probabilities that sum to 1 along the last axis. */

import { floats, rows } from "../values.js";
import { reader } from "./outputs.js";

/**
 * `exp(x - max)` over its sum, in float64, rounded once to float32. `temperature` divides the logits: above 1 for a model
 * that is too sure (Guo et al., 2017).
 *
 * @param {{tensor: string | null, temperature: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name, temperature }, place) {
  const read = reader(name, place, "post.softmax");
  return (value) => {
    const tensor = read(value);
    const made = new Float32Array(tensor.shape.reduce((product, dim) => product * dim, 1));
    let at = 0;
    for (const row of rows(tensor)) {
      let highest = -Infinity;
      for (let i = 0; i < row.length; i++) if (row[i] > highest) highest = row[i];
      const powers = new Float64Array(row.length);
      let total = 0;
      for (let i = 0; i < row.length; i++) total += powers[i] = Math.exp((row[i] - highest) / temperature);
      for (const power of powers) made[at++] = power / total;
    }
    return floats(made, tensor.shape);
  };
}
