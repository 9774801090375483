/** The step `post.boxes`: what a detector gives, in the many forms they have, to detections. */

import { EdgeInferError } from "../../errors.js";
import { didYouMean, listed } from "../words.js";
import { Detector, FORMATS, classesOf } from "./box-formats.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * Decodes detections of a score above `threshold`, in pixels of the model's input.
 *
 * @param {import("./box-formats.js").Parameters} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: an output that the format needs is not named, or the model has none of this name.
 */
export function prepare(parameters, place) {
  const { decode, needs = [], byStride = [] } = FORMATS[parameters.format];
  /** @type {Record<string, string>} */
  let names = { ...parameters.tensors };
  const known = [...needs, ...byStride];
  const unknown = Object.keys(names).find((what) => !known.includes(what));
  if (unknown !== undefined) {
    throw new EdgeInferError(`pipeline: \`post.boxes\` of the format \`${parameters.format}\` reads no \`${unknown}\`, expected ${listed(known)}`, "manifest_error", {
      hint: didYouMean(unknown, known) || `leave "${unknown}" out of "tensors"`,
      details: { field: unknown },
    });
  }
  for (const what of needs) {
    if (!(what in names) && needs.length > 1) {
      throw new EdgeInferError(`pipeline: \`post.boxes\` does not say which output is \`${what}\``, "manifest_error", {
        hint: `"tensors": {"${what}": "${place.outputs.keys().next().value ?? "NAME"}"}`,
      });
    }
    names[what] = place.output(names[what], "post.boxes");
  }
  if (byStride.length) {
    const given = names;
    const all = byStride.flatMap((what) => parameters.strides.map(Math.trunc).map((stride) => [`${what}_${stride}`, nameOf(given[what] ?? what, stride)]));
    names = Object.fromEntries(all);
    for (const [, name] of all) place.output(name, "post.boxes");
  }
  return (/** @type {Record<string, Tensor>} */ outputs, item) => {
    const chosen = Object.fromEntries(Object.entries(names).map(([what, name]) => [what, outputs[name]]));
    const classes = classesOf(parameters, chosen);
    if (classes !== null) place.checkLabels(classes);
    return decode(new Detector(chosen, parameters, [item.inputWidth, item.inputHeight], item.argument("threshold", parameters.threshold)));
  };
}

/** @param {string} name @param {number} stride @returns {string} The output of a stride. */
function nameOf(name, stride) {
  return name.includes("{s}") ? name.replaceAll("{s}", String(stride)) : `${name}_${stride}`;
}
