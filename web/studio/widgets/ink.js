/** From ink to a small grey picture, and from logits to shares: the arithmetic of `examples/digits_app.py`, for any size. */

/** Each pixel of the picture is the mean of so many points by so many. */
const SAMPLES = 4;
/** Fainter ink than this, of 255, is the edge of a stroke and does not widen the bounding box. */
const FAINTEST = 64;

/**
 * Fit the ink of a drawing into a picture of values from 0 to 1: its bounding box is centred in a square.
 *
 * @param {Uint8Array} pixels The ink of each pixel, row by row: 0 is paper, 255 is full ink.
 * @param {number} width
 * @param {number} height
 * @param {number} rows Of the picture.
 * @param {number} columns
 * @returns {Float32Array | null} Null where there is no ink.
 */
export function toPicture(pixels, width, height, rows, columns) {
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (pixels[y * width + x] < FAINTEST) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = y + 1;
    }
  }
  if (right === 0) return null;
  const side = Math.max(right - left, bottom - top);
  const across = sampled(left, right, side, columns * SAMPLES);
  const sums = new Array(rows * columns).fill(0);
  sampled(top, bottom, side, rows * SAMPLES).forEach((y, i) => {
    if (y < 0 || y >= height) return;
    const start = Math.floor(i / SAMPLES) * columns;
    across.forEach((x, j) => {
      const value = x >= 0 && x < width ? pixels[y * width + x] : 0;
      if (value >= FAINTEST) sums[start + Math.floor(j / SAMPLES)] += value;
    });
  });
  return Float32Array.from(sums, (total) => total / (255 * SAMPLES * SAMPLES));
}

/** The pixel under each point of a grid over a span that is centred in a square. @param {number} start @param {number} end @param {number} side @param {number} grid */
function sampled(start, end, side, grid) {
  return Array.from({ length: grid }, (_, i) => Math.floor((grid * (start + end - side) + (2 * i + 1) * side) / (2 * grid)));
}

/** @param {ArrayLike<number>} logits @returns {number[]} Shares that add up to 1. */
export function softmax(logits) {
  const values = Array.from(logits, Number);
  const largest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
