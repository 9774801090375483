/** The step `image.letterbox`: an image resized to fit a frame, the rest of the frame filled with one grey. */

import { roundEven } from "../values.js";
import { padded } from "./image.js";
import { resized } from "./resampling.js";

/** @typedef {import("./image.js").Image} Image */

/**
 * The geometry is that of Ultralytics (ultralytics/data/augment.py, `LetterBox`): sides rounded half to even, margins to
 * `round(margin / 2 - 0.1)`. Ultralytics resizes with OpenCV; the pixels here are Pillow's, a few levels apart.
 *
 * @param {{width: number, height: number, filter: string, order: string, color: number, anchor: string, upscale: boolean}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ width, height, filter, order, color, anchor, upscale }) {
  const before = (/** @type {number} */ more) => (anchor === "center" ? roundEven(more / 2 - 0.1) : 0);
  return (/** @type {Image} */ image, item) => {
    const fitting = Math.min(width / image.width, height / image.height);
    const ratio = upscale ? fitting : Math.min(fitting, 1);
    const [innerWidth, innerHeight] = [image.width, image.height].map((side) => Math.max(roundEven(side * ratio), 1));
    const inner = resized(image, innerWidth, innerHeight, filter, order);
    const [moreX, moreY] = [width - innerWidth, height - innerHeight];
    const [left, top] = [before(moreX), before(moreY)];
    item.geometry.push({ scaleX: ratio, scaleY: ratio, left, top });
    return padded(inner, left, top, moreX - left, moreY - top, color);
  };
}
