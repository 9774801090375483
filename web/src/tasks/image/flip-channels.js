/** The step `image.flip_channels`: red, green, blue to blue, green, red, for models that OpenCV's images trained. */

/** @typedef {import("./image.js").Image} Image */

/** @returns {import("../item.js").Apply} */
export function prepare() {
  return (/** @type {Image} */ image) => {
    const data = image.data.slice();
    const last = image.channels - 1;
    for (let at = 0; at < data.length; at += image.channels) {
      data[at] = image.data[at + last];
      data[at + last] = image.data[at];
    }
    return { ...image, data };
  };
}
