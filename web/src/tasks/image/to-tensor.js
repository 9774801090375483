/** The step `image.to_tensor`: the levels 0 to 255 themselves, for models that normalise in their first layer. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";
import { isChannelsFirst, laidOut, shapeOf } from "./layout.js";

/** @typedef {import("./image.js").Image} Image */

/**
 * For an int8 input 128 is taken off each level, which is how TensorFlow Lite shows the same pixels to int8 models.
 *
 * @param {{layout: "auto" | "NCHW" | "NHWC"}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the input is of a type that levels do not fit.
 */
export function prepare({ layout }, place) {
  const spec = place.spec();
  const array = { uint8: Uint8Array, int8: Int8Array, float32: Float32Array }[/** @type {string} */ (spec.dtype)];
  if (!array) {
    throw new EdgeInferError(`pipeline: \`image.to_tensor\` makes uint8, int8 or float32, and input \`${specText(spec)}\` is not`, "manifest_error", {
      hint: "image.rescale_normalize makes float16, tensor.quantize behind it int16",
    });
  }
  const channelsFirst = isChannelsFirst(layout, spec);
  const middle = spec.dtype === "int8" ? 128 : 0;
  return (/** @type {Image} */ image, item) => {
    [item.inputWidth, item.inputHeight] = [image.width, image.height];
    const data = laidOut(image, channelsFirst, new array(image.data.length), (level) => level - middle);
    return { data, dtype: spec.dtype, shape: shapeOf(image, channelsFirst) };
  };
}
