/** The step `tensor.constant`: an input that is always the same, such as a sampling rate. */

import { InferError } from "../../errors.js";
import { specText } from "../place.js";
import { packed } from "../values.js";

/**
 * @param {{values: number[]}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {InferError} `manifest_error`: the numbers are not as many as the input has elements, or do not fit its type.
 */
export function prepare({ values }, place) {
  const spec = place.spec();
  const shape = spec.shape.map((dim) => (typeof dim === "number" ? dim : 1));
  try {
    const tensor = packed(spec.dtype.startsWith("float") ? values : values.map(Math.trunc), spec.dtype, shape);
    return () => tensor;
  } catch (cause) {
    const said = cause instanceof Error ? cause.message : String(cause);
    throw new InferError(`pipeline: \`tensor.constant\` does not fit input \`${specText(spec)}\`: ${said}`, "manifest_error", { cause });
  }
}
