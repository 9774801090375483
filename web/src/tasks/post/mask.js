/** The step `post.mask`: a class for each pixel to a mask for each class, in the size of the image. */

import { InferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { cropped } from "../image/image.js";
import { resized } from "../image/resampling.js";
import { flat, roundEven } from "../values.js";
import { reader } from "./outputs.js";

/** @typedef {import("../image/image.js").Image} Image */
/** @typedef {import("../item.js").Item} Item */

/** The most pixels of all masks of an image together. */
const MAX_PIXELS = 300_000_000;

/**
 * It gives `[{label, score, mask}]` for each class that some pixel has, in the classes' order. A mask is `{data, width, height,
 * channels: 1}` in the size of the original, 255 where the class is. `score` is null, as in transformers' semantic
 * segmentation. The size is brought back by the nearest pixel; what a letterbox added is cut.
 *
 * @param {{tensor: string | null, layout: "labels" | "CHW" | "HWC"}} parameters `labels`: [rows, columns] of class numbers; else
 *   scores, the channels first or last.
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name, layout }, place) {
  const read = reader(name, place, "post.mask");
  return (value, item) => {
    const tensor = read(value);
    const [numbers, { shape }] = [flat(tensor), tensor];
    if (shape.length !== (layout === "labels" ? 2 : 3)) {
      throw new InferError(`the output has shape ${shapeText(shape)}, which is not that of \`${layout}\``, "execution_error", {
        hint: "choose another `layout`",
      });
    }
    const [height, width] = layout === "CHW" ? shape.slice(1) : shape;
    const labels = layout === "labels" ? numbers : best(numbers, layout === "CHW" ? shape[0] : shape[2], height * width, layout === "CHW");
    const found = [...new Set(Array.from(labels, Math.trunc))].sort((one, other) => one - other);
    if (found.length * item.width * item.height > MAX_PIXELS) {
      throw new InferError(`${found.length} masks of ${item.width} x ${item.height} pixels are more than ${MAX_PIXELS}`, "input_error", {
        hint: "give a smaller image",
      });
    }
    return found.map((label) => {
      const data = Uint8Array.from(labels, (one) => (one === label ? 255 : 0));
      return { label: place.label(label), score: null, mask: inImage({ data, width, height, channels: 1 }, item) };
    });
  };
}

/**
 * @param {ArrayLike<number>} scores
 * @param {number} classes
 * @param {number} pixels
 * @param {boolean} isFirst Whether the classes come before the pixels.
 * @returns {Int32Array} The class of the highest score for each pixel; of equal ones the lower.
 */
function best(scores, classes, pixels, isFirst) {
  const [byClass, byPixel] = isFirst ? [pixels, 1] : [1, classes];
  return Int32Array.from({ length: pixels }, (_, i) => {
    let label = 0;
    for (let c = 1; c < classes; c++) if (scores[c * byClass + i * byPixel] > scores[label * byClass + i * byPixel]) label = c;
    return label;
  });
}

/** @param {Image} given @param {Item} item @returns {Image} In the size of the original image: of a letterbox only the part that the image fills. */
function inImage(given, item) {
  let mask = given;
  for (const step of item.geometry.toReversed()) {
    if (!(step.left > 0 || step.top > 0 || step.scaleX === step.scaleY)) continue;
    const [ratioX, ratioY] = [mask.width / (item.inputWidth || mask.width), mask.height / (item.inputHeight || mask.height)];
    const [left, top] = [roundEven(step.left * ratioX), roundEven(step.top * ratioY)];
    const right = Math.min(mask.width, roundEven((step.left + item.width * step.scaleX) * ratioX));
    const bottom = Math.min(mask.height, roundEven((step.top + item.height * step.scaleY) * ratioY));
    mask = cropped(mask, left, top, right - left, bottom - top);
  }
  return resized(mask, item.width, item.height, "nearest", "horizontal");
}
