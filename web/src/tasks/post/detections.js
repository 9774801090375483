/** The step `post.detections`: boxes in the model's pixels to boxes in the image's, with the names of their classes. */

/** @typedef {import("../item.js").Item} Item */
/** @typedef {import("./detection.js").Detection} Detection */

/**
 * It gives `[{score, label, box: {xmin, ymin, xmax, ymax}}]`, as transformers writes it. Boxes are clipped to the image. Where a
 * detector gives points, each answer has `keypoints`, `[{x, y}]`; they are not clipped.
 *
 * @param {{points: Record<string, string>}} parameters The names of an object's points, such as the eyes.
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ points: names }, place) {
  return (/** @type {Detection[]} */ found, item) =>
    found.map(({ score, label, box, points }) => {
      const [left, top] = back(box[0], box[1], item);
      const [right, bottom] = back(box[2], box[3], item);
      const clipped = {
        xmin: clip(left, item.width),
        ymin: clip(top, item.height),
        xmax: clip(right, item.width),
        ymax: clip(bottom, item.height),
      };
      const answer = { score, label: place.label(label), box: clipped };
      if (points.length === 0) return answer;
      const keypoints = points.map(([givenX, givenY], k) => {
        const [x, y] = back(givenX, givenY, item);
        return k in names ? { label: names[k], x, y } : { x, y };
      });
      return { ...answer, keypoints };
    });
}

/** @param {number} x @param {number} y @param {Item} item @returns {[number, number]} Where a point of the model's input lies in the image. */
function back(x, y, { geometry }) {
  for (const { scaleX, scaleY, left, top } of geometry.toReversed()) [x, y] = [(x - left) / scaleX, (y - top) / scaleY];
  return [x, y];
}

/** @param {number} value @param {number} size */
function clip(value, size) {
  return Math.min(Math.max(value, 0), size);
}
