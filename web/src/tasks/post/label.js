/** The step `post.label`: the class that a model itself chooses, without a score: `[{label}]`. */

import { EdgeInferError } from "../../errors.js";
import { flat } from "../values.js";
import { reader } from "./outputs.js";

/**
 * Its name where the output has texts, else its number as text.
 *
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name }, place) {
  const read = reader(name, place, "post.label");
  return (value) => {
    const found = flat(read(value));
    if (found.length === 1) return [{ label: String(found[0]) }];
    throw new EdgeInferError(`the model gives ${found.length} classes, expected 1`, "input_error", { hint: '{"step": "post.top_k"}' });
  };
}
