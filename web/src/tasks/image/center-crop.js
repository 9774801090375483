/** The step `image.center_crop`: the middle of an image. */

import { roundEven } from "../values.js";
import { cropped, padded } from "./image.js";

/** @typedef {import("./image.js").Image} Image */

/**
 * Where the margin is odd, `transformers` rounds the left and upper one down, `torchvision` to the even number. A smaller
 * image is padded with black.
 *
 * @param {{width: number, height: number, rule: "transformers" | "torchvision"}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ width, height, rule }) {
  const isTorchvision = rule === "torchvision";
  const before = (/** @type {number} */ more) => Math.floor((isTorchvision ? more : more + 1) / 2);
  const margin = (/** @type {number} */ size) => (isTorchvision ? roundEven(size / 2) : Math.floor(size / 2));
  return (/** @type {Image} */ given, item) => {
    const [moreX, moreY] = [Math.max(width - given.width, 0), Math.max(height - given.height, 0)];
    const [left, top] = [before(moreX), before(moreY)];
    const image = moreX || moreY ? padded(given, left, top, moreX - left, moreY - top, 0) : given;
    const [x, y] = [margin(image.width - width), margin(image.height - height)];
    item.geometry.push({ scaleX: 1, scaleY: 1, left: left - x, top: top - y });
    return cropped(image, x, y, width, height);
  };
}
