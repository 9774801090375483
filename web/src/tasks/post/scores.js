/** Scores of classes for each pixel of a map: resized, and the best class chosen. */

/** @typedef {{left: number, top: number, right: number, bottom: number}} Part Of a map, in pixels. */
/**
 * @typedef {object} ScoreMap
 * @property {ArrayLike<number>} numbers The scores.
 * @property {number} classes How many there are for each pixel.
 * @property {number} width
 * @property {number} height
 * @property {boolean} isFirst Whether all pixels of a class lie together; else all classes of a pixel do.
 */

/**
 * @param {ScoreMap} map
 * @param {Part} part
 * @param {number} width What the part's width becomes.
 * @param {number} height Likewise its height.
 * @returns {Int32Array} The best class of each pixel of the part, resized bilinearly; of equal ones the lower.
 */
export function bestOf({ numbers, classes, width: stride, height: rows, isFirst }, { left, top, right, bottom }, width, height) {
  const [byClass, byPixel] = isFirst ? [stride * rows, 1] : [1, classes];
  const [across, down] = [placesOf(right - left, width), placesOf(bottom - top, height)];
  const found = new Int32Array(width * height);
  let at = 0;
  for (const [first, second, weight] of down) {
    const [upper, lower] = [(top + first) * stride + left, (top + second) * stride + left];
    for (const [near, far, share] of across) {
      let [best, label] = [0, -1];
      for (let c = 0; c < classes; c++) {
        const start = c * byClass;
        const over = (1 - share) * numbers[start + (upper + near) * byPixel] + share * numbers[start + (upper + far) * byPixel];
        const under = (1 - share) * numbers[start + (lower + near) * byPixel] + share * numbers[start + (lower + far) * byPixel];
        const score = (1 - weight) * over + weight * under;
        if (label < 0 || score > best) [best, label] = [score, c];
      }
      found[at++] = label;
    }
  }
  return found;
}

/**
 * @param {number} old
 * @param {number} size
 * @returns {[number, number, number][]} For each place of a resized line the two old ones it lies between, and how near it is to the second.
 */
function placesOf(old, size) {
  return Array.from({ length: size }, (_, i) => {
    const at = Math.max((i + 0.5) * (old / size) - 0.5, 0);
    const first = Math.min(Math.trunc(at), old - 1);
    return [first, Math.min(first + 1, old - 1), at - first];
  });
}
