/** The step `tensor.constant`: an input that is always the same, such as a sampling rate. */

import { EdgeInferError } from "../../errors.js";
import { sizeOf } from "../../tensors.js";
import { specText } from "../place.js";
import { packed } from "../values.js";
import { shown } from "../words.js";

/**
 * @param {{values: number[]}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the numbers are not as many as the input has elements, or do not fit its type.
 */
export function prepare({ values }, place) {
  const spec = place.spec();
  const shape = spec.shape.map((dim) => (typeof dim === "number" ? dim : 1));
  try {
    const tensor = packed(spec.dtype.startsWith("float") ? values : values.map(Math.trunc), spec.dtype, shape);
    return () => tensor;
  } catch (cause) {
    const size = sizeOf(shape);
    throw new EdgeInferError(
      `pipeline: \`tensor.constant\` has the values ${shown(values)}, expected ${size} numbers that ${spec.dtype} holds, for input \`${specText(spec)}\``,
      "manifest_error",
      { hint: `write ${size} of them in \`values\``, details: { field: "values" }, cause },
    );
  }
}
