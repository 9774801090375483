/** The step `post.tensor`: one output of the model, unchanged. */

import { reader } from "./outputs.js";

/**
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor }, place) {
  return reader(tensor, place, "post.tensor");
}
