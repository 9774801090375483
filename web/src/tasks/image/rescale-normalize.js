/** The step `image.rescale_normalize`: levels of 0 to 255 to the numbers that a model takes. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";
import { floats, packed } from "../values.js";
import { shown } from "../words.js";
import { isChannelsFirst, laidOut, shapeOf } from "./layout.js";

/** @typedef {import("./image.js").Image} Image */

/**
 * `(level * scale - mean) / std` for each channel. Each of the 256 levels is computed once, in float64, and rounded once:
 * every language then looks up the same bits.
 *
 * @param {{scale: number, mean: number[], std: number[], layout: "auto" | "NCHW" | "NHWC"}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the input is not float32 or float16; a `std` is 0; or `mean` and `std` differ in length.
 */
export function prepare({ scale, mean, std, layout }, place) {
  const spec = place.spec();
  if (spec.dtype !== "float32" && spec.dtype !== "float16") {
    throw new EdgeInferError(`pipeline: \`image.rescale_normalize\` makes floats, and input \`${specText(spec)}\` is not`, "manifest_error", {
      hint: "image.to_tensor gives a model the levels themselves, tensor.quantize behind this step its own steps",
    });
  }
  if (mean.length !== std.length || mean.length === 0 || std.includes(0)) {
    const given = `the \`mean\` ${shown(mean)} and the \`std\` ${shown(std)}`;
    throw new EdgeInferError(
      `pipeline: \`image.rescale_normalize\` has ${given}, expected a number for each channel in both, and no \`std\` 0`,
      "manifest_error",
      { hint: '"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]', details: { field: "std" } },
    );
  }
  const channelsFirst = isChannelsFirst(layout, spec);
  const tables = mean.map((_, i) => Float32Array.from({ length: 256 }, (_, level) => (level * scale - mean[i]) / std[i]));
  return (/** @type {Image} */ image, item) => {
    [item.inputWidth, item.inputHeight] = [image.width, image.height];
    const used = tables.length === image.channels ? tables : Array.from({ length: image.channels }, () => tables[0]);
    const numbers = laidOut(image, channelsFirst, new Float32Array(image.data.length), (level, channel) => used[channel][level]);
    const shape = shapeOf(image, channelsFirst);
    return spec.dtype === "float32" ? floats(numbers, shape) : packed(Array.from(numbers), "float16", shape);
  };
}
