/**
 * What happens before and after the model, in JavaScript: the same arithmetic as `examples/digits_app.py`, so that
 * both modes of the page give the same answer.
 */

import { softmax, toPicture } from "../studio/widgets/ink.js";

const SIDE = 8;

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
  return toPicture(pixels, width, height, SIDE, SIDE);
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
