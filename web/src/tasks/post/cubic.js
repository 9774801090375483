/**
 * Resize a map of numbers by cubic convolution, as PyTorch's `interpolate(mode="bicubic")` does without aligned corners. The
 * same as `edge_infer.tasks.post.cubic`, bit for bit.
 */

/** @typedef {import("./scores.js").Part} Part */
/** @typedef {{places: number[], weights: number[]}} Taps The four places of a line that a new one is made of. */

const A = -0.75;

/**
 * @param {ArrayLike<number>} numbers The map, row by row.
 * @param {number} stride How many numbers a row has.
 * @param {Part} part
 * @param {number} width What the part's width becomes.
 * @param {number} height Likewise its height.
 * @returns {Float64Array}
 */
export function resizedMap(numbers, stride, { left, top, right, bottom }, width, height) {
  const [across, down] = [tapsOf(right - left, width), tapsOf(bottom - top, height)];
  const wide = new Float64Array((bottom - top) * width);
  for (let y = top; y < bottom; y++) {
    const from = y * stride + left;
    for (let x = 0; x < width; x++) {
      const { places: p, weights: w } = across[x];
      wide[(y - top) * width + x] =
        w[0] * numbers[from + p[0]] + w[1] * numbers[from + p[1]] + w[2] * numbers[from + p[2]] + w[3] * numbers[from + p[3]];
    }
  }
  const found = new Float64Array(width * height);
  for (let y = 0; y < height; y++) {
    const { weights: w } = down[y];
    const [a, b, c, d] = down[y].places.map((place) => place * width);
    for (let x = 0; x < width; x++) {
      found[y * width + x] = w[0] * wide[a + x] + w[1] * wide[b + x] + w[2] * wide[c + x] + w[3] * wide[d + x];
    }
  }
  return found;
}

/** @param {number} old @param {number} size @returns {Taps[]} */
function tapsOf(old, size) {
  return Array.from({ length: size }, (_, i) => {
    const at = (i + 0.5) * (old / size) - 0.5;
    const first = Math.floor(at);
    const t = at - first;
    const places = [-1, 0, 1, 2].map((k) => Math.min(Math.max(first + k, 0), old - 1));
    return { places, weights: [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)] };
  });
}

/** @param {number} x */
function inner(x) {
  return ((A + 2) * x - (A + 3)) * x * x + 1;
}

/** @param {number} x */
function outer(x) {
  return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A;
}
