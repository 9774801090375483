/** The step `post.normalize`: a vector of length 1. */

import { floats, rows } from "../values.js";
import { reader } from "./outputs.js";

/**
 * Each row is divided by its Euclidean length, or by `epsilon` where that is longer.
 *
 * @param {{tensor: string | null, epsilon: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name, epsilon }, place) {
  const read = reader(name, place, "post.normalize");
  return (value) => {
    const tensor = read(value);
    const made = new Float32Array(tensor.shape.reduce((product, dim) => product * dim, 1));
    let at = 0;
    for (const row of rows(tensor)) {
      let total = 0;
      for (let i = 0; i < row.length; i++) total += row[i] * row[i];
      const length = Math.max(Math.sqrt(total), epsilon);
      for (let i = 0; i < row.length; i++) made[at++] = row[i] / length;
    }
    return floats(made, tensor.shape);
  };
}
