/** The step `post.nms`: of boxes that overlap, only the best. */

import { byScore } from "../values.js";

/** @typedef {import("./detection.js").Detection} Detection */
/** @typedef {import("./detection.js").Box} Box */

const { fround, max, min } = Math;

/**
 * Thins out detections, the best first. `greedy` is the rule of torchvision's `ops.nms`: in float32, a stable order by score,
 * and a box goes where its intersection over union with a better one is above the threshold. `weighted` is MediaPipe's: a box
 * is the mean, by score, of those it stands for.
 *
 * @param {{iou: number, by_class: boolean, limit: number, method: "greedy" | "weighted"}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ iou, by_class, limit, method }) {
  return (/** @type {Detection[]} */ found, item) => {
    const threshold = item.argument("iou", iou);
    return method === "weighted" ? weighted(found, threshold).slice(0, limit) : greedy(found, threshold, by_class, limit);
  };
}

/** @param {Detection[]} found @param {number} threshold @param {boolean} byClass @param {number} limit @returns {Detection[]} */
function greedy(found, threshold, byClass, limit) {
  const boxes = found.map(({ box }) => Float32Array.from(box));
  const areas = boxes.map(([left, top, right, bottom]) => fround(fround(right - left) * fround(bottom - top)));
  const order = byScore(found.length, (i) => fround(found[i].score));
  const isGone = new Uint8Array(found.length);
  /** @type {Detection[]} */
  const kept = [];
  for (const [place, i] of order.entries()) {
    if (isGone[i]) continue;
    kept.push(found[i]);
    if (kept.length === limit) break;
    const [left, top, right, bottom] = boxes[i];
    for (const j of order.slice(place + 1)) {
      if (isGone[j] || (byClass && found[i].label !== found[j].label)) continue;
      const other = boxes[j];
      const width = fround(min(right, other[2]) - max(left, other[0]));
      const height = fround(min(bottom, other[3]) - max(top, other[1]));
      if (width <= 0 || height <= 0) continue;
      const shared = fround(width * height);
      const both = fround(fround(areas[i] + areas[j]) - shared);
      if (both > 0 && fround(shared / both) > threshold) isGone[j] = 1;
    }
  }
  return kept;
}

/** @param {Detection[]} found @param {number} threshold @returns {Detection[]} */
function weighted(found, threshold) {
  let left = found.toSorted((one, other) => other.score - one.score);
  /** @type {Detection[]} */
  const made = [];
  while (left.length) {
    const [best] = left;
    const near = left.filter((one) => one === best || overlap(best.box, one.box) > threshold);
    const gone = new Set(near);
    left = left.filter((one) => !gone.has(one));
    const total = sum(near.map(({ score }) => score));
    const mean = (/** @type {(one: Detection) => number} */ of) => sum(near.map((one) => one.score * of(one))) / total;
    const box = /** @type {Box} */ ([0, 1, 2, 3].map((side) => mean((one) => one.box[side])));
    const points = best.points.map((_, k) => /** @type {[number, number]} */ ([0, 1].map((axis) => mean((one) => one.points[k][axis]))));
    made.push({ score: best.score, label: best.label, box, points });
  }
  return made;
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/** @param {Box} one @param {Box} other @returns {number} The intersection over union of two boxes. */
function overlap(one, other) {
  const width = min(one[2], other[2]) - max(one[0], other[0]);
  const height = min(one[3], other[3]) - max(one[1], other[1]);
  const shared = max(width, 0) * max(height, 0);
  const both = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared;
  return both > 0 ? shared / both : 0;
}
