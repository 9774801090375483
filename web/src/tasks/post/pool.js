/** The step `post.pool`: a vector for each token to one for the text. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { floats, rows } from "../values.js";
import { reader } from "./outputs.js";

/**
 * Pools [tokens, width] to [width], over the tokens that are not padding. `first` is the token `[CLS]`; `none` keeps all
 * vectors. Sums are float64. Source: sentence-transformers' `models.Pooling`.
 *
 * @param {{tensor: string | null, method: "mean" | "first" | "last" | "max" | "none"}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name, method }, place) {
  const read = reader(name, place, "post.pool");
  return (value, item) => {
    const tensor = read(value);
    if (tensor.shape.length !== 2) {
      throw new EdgeInferError(`the output has shape ${shapeText(tensor.shape)}, expected [tokens, width]`, "execution_error", {
        hint: 'without the step post.pool: {"step": "post.tensor"}',
      });
    }
    const [, width] = tensor.shape;
    const mask = item.encoding?.attentionMask;
    const vectors = rows(tensor).filter((_, i) => !mask || mask[i]);
    if (method === "none") return floats(vectors.flatMap((vector) => Array.from(vector)), [vectors.length, width]);
    return floats(pooled(vectors, method), [width]);
  };
}

/** @param {ArrayLike<number>[]} vectors @param {"mean" | "first" | "last" | "max"} method @returns {ArrayLike<number>} */
function pooled(vectors, method) {
  if (method === "first") return vectors[0];
  if (method === "last") return vectors[vectors.length - 1];
  const made = Float64Array.from(vectors[0]);
  for (const vector of vectors.slice(1)) {
    for (let i = 0; i < made.length; i++) made[i] = method === "max" ? Math.max(made[i], vector[i]) : made[i] + vector[i];
  }
  return method === "max" ? made : made.map((total) => total / vectors.length);
}
