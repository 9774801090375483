/** The step `post.mask`: a class for each pixel to a mask for each class, in the size of the image. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { cropped } from "../image/image.js";
import { resized } from "../image/resampling.js";
import { flat } from "../values.js";
import { partOf } from "./map-part.js";
import { reader } from "./outputs.js";
import { bestOf } from "./scores.js";

/** @typedef {import("../image/image.js").Image} Image */
/** @typedef {import("../item.js").Item} Item */

/** The most pixels of all masks of an image together. */
const MAX_PIXELS = 300_000_000;

/**
 * It gives `[{label, score, mask}]` for each class that some pixel has, in the classes' order. A mask is `{data, width, height,
 * channels: 1}` in the size of the original, 255 where the class is. `score` is null, as in transformers' semantic
 * segmentation. What a letterbox added is cut. Scores are resized bilinearly before the best is chosen (PyTorch's
 * `interpolate`, corners not aligned), class numbers by the nearest pixel.
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
      throw new EdgeInferError(`the output has shape ${shapeText(shape)}, which is not that of \`${layout}\``, "execution_error", {
        hint: "choose another `layout`",
      });
    }
    const [height, width] = layout === "CHW" ? shape.slice(1) : shape;
    const isFirst = layout === "CHW";
    const map = { numbers, classes: isFirst ? shape[0] : shape[2], width, height, isFirst };
    const isScores = layout !== "labels";
    if (isScores) place.checkLabels(map.classes);
    const labels = isScores ? bestOf(map, partOf(width, height, item), item.width, item.height) : numbers;
    const found = [...new Set(Array.from(labels, Math.trunc))].sort((one, other) => one - other);
    if (found.length * item.width * item.height > MAX_PIXELS) {
      throw new EdgeInferError(`${found.length} masks of ${item.width} x ${item.height} pixels are more than ${MAX_PIXELS}`, "input_error", {
        hint: "give a smaller image",
      });
    }
    return found.map((label) => {
      const data = Uint8Array.from(labels, (one) => (one === label ? 255 : 0));
      const size = isScores ? { width: item.width, height: item.height } : { width, height };
      return { label: place.label(label), score: null, mask: inImage({ data, ...size, channels: 1 }, item) };
    });
  };
}

/** @param {Image} mask @param {Item} item @returns {Image} In the size of the original image. */
function inImage(mask, item) {
  if (mask.width === item.width && mask.height === item.height) return mask;
  const { left, top, right, bottom } = partOf(mask.width, mask.height, item);
  return resized(cropped(mask, left, top, right - left, bottom - top), item.width, item.height, "nearest", "horizontal");
}
