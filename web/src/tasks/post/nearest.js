/** The step `post.nearest`: distances to scores, each the distance times -1: the nearest has the highest. */

import { flat, floats } from "../values.js";
import { reader } from "./outputs.js";

/**
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name }, place) {
  const read = reader(name, place, "post.nearest");
  return (value) => {
    const tensor = read(value);
    return floats(Float32Array.from(flat(tensor), (one) => 0 - one), tensor.shape);
  };
}
