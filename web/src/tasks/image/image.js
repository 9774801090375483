/** An image in memory: 8-bit pixels, rows first, the channels of a pixel side by side. */

import { EdgeInferError } from "../../errors.js";

/**
 * @typedef {object} Image
 * @property {Uint8Array | Uint8ClampedArray} data `height * width * channels` bytes, row by row from the top.
 * @property {number} width Pixels in a row.
 * @property {number} height Rows.
 * @property {number} channels 1 (grey) or 3 (red, green, blue).
 */

/** An image of more pixels is refused: 100 million take 300 MB. */
export const MAX_PIXELS = 100_000_000;
/** The longest side, which is JPEG's: the weights that resize a line are as many as its pixels. */
const MAX_SIDE = 65_535;

/** @param {number} width @param {number} height */
export function checkSize(width, height) {
  if (Number.isInteger(width) && Number.isInteger(height) && width >= 1 && height >= 1 && width * height <= MAX_PIXELS && Math.max(width, height) <= MAX_SIDE) return;
  throw new EdgeInferError(`an image has ${width} x ${height} pixels, expected 1 to ${MAX_PIXELS} in all and sides up to ${MAX_SIDE}`, "input_error", {
    hint: "give a smaller one",
    details: { got: [width, height] },
  });
}

/**
 * @param {Image} image
 * @param {number} left
 * @param {number} top
 * @param {number} right
 * @param {number} bottom
 * @param {number} level
 * @returns {Image} The image with as many pixels more on each side, all channels at one level.
 */
export function padded(image, left, top, right, bottom, level) {
  const { channels } = image;
  const [width, height] = [image.width + left + right, image.height + top + bottom];
  const data = new Uint8Array(width * height * channels).fill(level);
  const stride = image.width * channels;
  for (let y = 0; y < image.height; y++) {
    data.set(image.data.subarray(y * stride, (y + 1) * stride), ((top + y) * width + left) * channels);
  }
  return { data, width, height, channels };
}

/**
 * @param {Image} image
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @returns {Image} A part of it.
 */
export function cropped(image, x, y, width, height) {
  const { channels } = image;
  const data = new Uint8Array(width * height * channels);
  for (let line = 0; line < height; line++) {
    const at = ((y + line) * image.width + x) * channels;
    data.set(image.data.subarray(at, at + width * channels), line * width * channels);
  }
  return { data, width, height, channels };
}
