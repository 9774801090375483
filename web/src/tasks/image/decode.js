/** The step `image.decode`: a file, an element of the page, or pixels to an image. */

import { checkSize } from "./image.js";
import { pixelsOf } from "./pixels.js";

/** @typedef {import("./image.js").Image} Image */

/**
 * A file is turned upright as its EXIF data say. Grey is `(19595 R + 38470 G + 7471 B + 32768) >> 16`, as in Pillow.
 *
 * @param {{mode: "RGB" | "L", background: number[] | null}} parameters `background` is what shows through transparent pixels;
 *   null drops the alpha channel, as transformers and torchvision do.
 * @returns {import("../item.js").Apply}
 */
export function prepare({ mode, background }) {
  return async (value, item) => {
    const image = converted(await pixelsOf(value), mode === "RGB" ? 3 : 1, background);
    checkSize(image.width, image.height);
    [item.width, item.height] = [image.width, image.height];
    return image;
  };
}

/** @param {Image} image @param {number} channels @param {number[] | null} background @returns {Image} */
function converted(image, channels, background) {
  if (image.channels === channels) return image;
  const { data: old, width, height } = image;
  const pixels = width * height;
  const data = new Uint8Array(pixels * channels);
  if (image.channels === 1) {
    for (let i = 0; i < pixels; i++) data.fill(old[i], 3 * i, 3 * i + 3);
    return { data, width, height, channels };
  }
  for (let i = 0, at = 0; i < pixels; i++, at += image.channels) {
    let [r, g, b] = [old[at], old[at + 1], old[at + 2]];
    if (background && image.channels === 4 && old[at + 3] < 255) {
      [r, g, b] = [over(r, background[0], old[at + 3]), over(g, background[1], old[at + 3]), over(b, background[2], old[at + 3])];
    }
    if (channels === 3) {
      data[3 * i] = r;
      data[3 * i + 1] = g;
      data[3 * i + 2] = b;
    } else {
      data[i] = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
    }
  }
  return { data, width, height, channels };
}

/**
 * @param {number} level
 * @param {number} under
 * @param {number} alpha
 * @returns {number} The level over an opaque one, as Pillow's `alpha_composite` computes it (src/libImaging/AlphaComposite.c).
 */
function over(level, under, alpha) {
  const total = level * alpha * 128 + Math.trunc(under) * (255 - alpha) * 128 + (128 << 7);
  return (((total >> 8) + total) >> 8) >> 7;
}
