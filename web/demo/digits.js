/**
 * What happens before and after the model, in JavaScript: the same arithmetic as `examples/digits_app.py`, so that
 * both modes of the page give the same answer.
 */

// The bounding box of the ink is scaled to a bitmap of 32 x 32, and each pixel of the image is the mean of 4 x 4.
const SIDE = 8;
const SAMPLES = 4;
const GRID = SIDE * SAMPLES;
// Fainter ink than this, of 255, is the edge of a stroke and does not widen the bounding box.
const FAINTEST = 64;

/** @typedef {{digit: number | null, scores: number[], image: number[], ms: number}} Answer */

/**
 * Fit the ink of a drawing into the model's 8 x 8 pixels of 0 to 1.
 *
 * @param {Uint8Array} pixels The ink of each pixel, row by row: 0 is paper, 255 is full ink.
 * @param {number} width
 * @param {number} height
 * @returns {Float32Array | null} Null where there is no ink.
 */
export function toImage(pixels, width, height) {
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (pixels[y * width + x] < FAINTEST) continue;
      if (x < left) left = x;
      if (x >= right) right = x + 1;
      if (y < top) top = y;
      bottom = y + 1;
    }
  }
  if (right === 0) return null;

  const side = Math.max(right - left, bottom - top);
  const columns = sampled(left, right, side);
  const sums = new Array(SIDE * SIDE).fill(0);
  sampled(top, bottom, side).forEach((y, i) => {
    if (y < 0 || y >= height) return;
    const start = Math.floor(i / SAMPLES) * SIDE;
    columns.forEach((x, j) => {
      const value = x >= 0 && x < width ? pixels[y * width + x] : 0;
      if (value >= FAINTEST) sums[start + Math.floor(j / SAMPLES)] += value;
    });
  });
  return Float32Array.from(sums, (total) => total / (255 * SAMPLES * SAMPLES));
}

/**
 * Place the grid over a span of the drawing that is centred in a square of `side`: the pixel under each point.
 *
 * @param {number} start
 * @param {number} end
 * @param {number} side
 * @returns {number[]}
 */
function sampled(start, end, side) {
  return Array.from({ length: GRID }, (_, i) =>
    Math.floor((GRID * (start + end - side) + (2 * i + 1) * side) / (2 * GRID)),
  );
}

/**
 * @param {ArrayLike<number>} logits
 * @returns {number[]} Probabilities.
 */
export function softmax(logits) {
  const values = Array.from(logits);
  const largest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/**
 * Recognise the digit in a drawing.
 *
 * @param {import("../src/index.js").Session} session
 * @param {Uint8Array} pixels
 * @param {number} width
 * @param {number} height
 * @returns {Promise<Answer>}
 */
export async function classify(session, pixels, width, height) {
  const image = toImage(pixels, width, height);
  if (!image) return { digit: null, scores: [], image: [], ms: 0 };
  const start = performance.now();
  const { logits } = await session.run({ image: { data: image, dtype: "float32", shape: [1, 1, SIDE, SIDE] } });
  const ms = performance.now() - start;
  const scores = softmax(/** @type {Float32Array} */ (logits.data));
  return { digit: scores.indexOf(Math.max(...scores)), scores, image: Array.from(image), ms };
}
