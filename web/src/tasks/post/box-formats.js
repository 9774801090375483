/**
 * The forms in which detectors give their boxes. Each function takes a `Detector` and returns the detections above its
 * threshold, in pixels of the model's input. The scores are compared as the model gives them.
 */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { best, flat, part } from "../values.js";
import { corners } from "./detection.js";
import { sigmoid } from "./sigmoid.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */
/** @typedef {import("./detection.js").Detection} Detection */
/** @typedef {import("./detection.js").Box} Box */
/**
 * @typedef {object} Parameters Those of the step `post.boxes`.
 * @property {string} format
 * @property {Record<string, string>} tensors Which output is what; formats of one output need none.
 * @property {number} threshold
 * @property {"xyxy" | "yxyx" | "cxcywh"} order How the four numbers of a box are ordered.
 * @property {"pixel" | "ratio"} unit Whether they are pixels of the input or parts of its sides.
 * @property {"none" | "first" | "last"} background The class that stands for "nothing"; the classes behind it move down by one.
 * @property {"none" | "sigmoid" | "softmax"} activation
 * @property {number[]} strides
 * @property {number[] | null} anchors Four numbers for each: the centre's x and y, width and height, as parts of the input's sides.
 * @property {number[]} variances What the four numbers of `ssd` are divided by.
 * @property {boolean} exponential Whether sizes are exponents.
 * @property {number} points
 */
/**
 * @typedef {object} Format How one kind of detector is read.
 * @property {(detector: Detector) => Detection[]} decode
 * @property {string[]} [needs] What its outputs are.
 * @property {string[]} [byStride] What there is of each stride, where it gives an output for each.
 */

/** MediaPipe's decoders clip logits here, so that `exp` cannot overflow. */
const MOST_LOGIT = 100;
/** No side of a box is longer than `exp` of it. */
const MOST_EXPONENT = 80;

/** @param {number} value */
const limitedExp = (value) => Math.exp(Math.min(value, MOST_EXPONENT));

/** What a decoder works on. */
export class Detector {
  /**
   * @param {Record<string, Tensor>} outputs The model's outputs of one image by what they are.
   * @param {Parameters} parameters
   * @param {[width: number, height: number]} size Of the model's input, in pixels.
   * @param {number} threshold Detections must score above it.
   */
  constructor(outputs, parameters, size, threshold) {
    this.outputs = outputs;
    this.parameters = parameters;
    this.size = size;
    this.threshold = threshold;
  }

  /**
   * @param {string} what
   * @param {number} rank
   * @returns {[ArrayLike<number>, number[]]} The numbers of an output, and its shape.
   * @throws {EdgeInferError} `execution_error`: it has another rank than the format says.
   */
  shaped(what, rank) {
    const tensor = this.outputs[what];
    if (tensor.shape.length === rank) return [flat(tensor), tensor.shape];
    throw new EdgeInferError(`an output of the detector has shape ${shapeText(tensor.shape)}, expected ${rank} dimensions`, "execution_error", {
      hint: "choose another `format` for the step post.boxes",
    });
  }

  /**
   * @param {ArrayLike<number>} numbers
   * @param {number} at
   * @returns {Box} That which the model gave from there on, in the step's `order` and `unit`.
   */
  box(numbers, at) {
    const [a, b, c, d] = [numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]];
    const { order, unit } = this.parameters;
    /** @type {Box} */
    const found = order === "yxyx" ? [b, a, d, c] : order === "cxcywh" ? corners(a, b, c, d) : [a, b, c, d];
    if (unit === "pixel") return found;
    const [width, height] = this.size;
    return [found[0] * width, found[1] * height, found[2] * width, found[3] * height];
  }

  /**
   * @param {ArrayLike<number>} scores
   * @returns {{score: number, label: number}} The highest of an object's classes, after `activation`. The background counts for
   *   softmax; it cannot be the best.
   */
  best(scores) {
    const { activation, background } = this.parameters;
    const [first, last] = [Number(background === "first"), scores.length - Number(background === "last")];
    if (first >= last) return { score: -Infinity, label: 0 };
    const label = best(scores, first, last);
    let score = scores[label];
    if (activation === "sigmoid") {
      score = sigmoid(Math.max(-MOST_LOGIT, Math.min(MOST_LOGIT, score)));
    } else if (activation === "softmax") {
      let [highest, total] = [-Infinity, 0];
      for (let i = 0; i < scores.length; i++) highest = Math.max(highest, scores[i]);
      for (let i = 0; i < scores.length; i++) total += Math.exp(scores[i] - highest);
      score = Math.exp(score - highest) / total;
    }
    return { score, label: label - first };
  }
}

/**
 * @param {Parameters} parameters
 * @param {Record<string, Tensor>} outputs
 * @returns {number | null} How many classes a detector's outputs have, the background apart; null where their shapes do not show it.
 */
export function classesOf({ format, points, background }, { scores, out }) {
  const shape = (["decoded", "ssd"].includes(format) ? scores : out)?.shape;
  if (shape?.length !== 2) return null;
  if (format === "decoded" || format === "ssd") return shape[1] - Number(background !== "none");
  if (format === "yolov5") return shape[1] - 5;
  return format === "yolov8" ? shape[0] - 4 - 3 * points : null;
}

/** Boxes [n, 4] that the graph decoded already, beside scores [n, classes]: UltraFace, DETR. @param {Detector} detector */
function decoded(detector) {
  const [boxes] = detector.shaped("boxes", 2);
  const [scores, [count, classes]] = detector.shaped("scores", 2);
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0; i < count; i++) {
    const { score, label } = detector.best(part(scores, i * classes, (i + 1) * classes));
    if (score > detector.threshold) found.push({ score, label, box: detector.box(boxes, 4 * i), points: [] });
  }
  return found;
}

/** What TFLite_Detection_PostProcess gives: boxes [n, 4], classes [n], scores [n], and how many count. @param {Detector} detector */
function tflite(detector) {
  const [boxes] = detector.shaped("boxes", 2);
  const [classes, scores, counts] = ["classes", "scores", "count"].map((what) => flat(detector.outputs[what]));
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0; i < Math.min(Math.trunc(counts[0]), scores.length); i++) {
    if (scores[i] > detector.threshold) found.push({ score: scores[i], label: Math.trunc(classes[i]), box: detector.box(boxes, 4 * i), points: [] });
  }
  return found;
}

/** [n, 5 + classes]: centre, size, objectness, and a score for each class; the product counts (Ultralytics). @param {Detector} detector */
function yolov5(detector) {
  const { threshold } = detector;
  const [numbers, [count, width]] = detector.shaped("out", 2);
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0, at = 0; i < count; i++, at += width) {
    if (!(numbers[at + 4] > threshold)) continue;
    const label = best(numbers, at + 5, at + width) - at - 5;
    const score = Math.fround(numbers[at + 4] * numbers[at + 5 + label]);
    if (score > threshold) found.push({ score, label, box: corners(numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]), points: [] });
  }
  return found;
}

/** [4 + classes (+ 3 for each point), n], channels first: centre, size, then probabilities (YOLOv8, 9 and 11). @param {Detector} detector */
function yolov8(detector) {
  const [numbers, [channels, count]] = detector.shaped("out", 2);
  const { points } = detector.parameters;
  const classes = channels - 4 - 3 * points;
  const scores = new Float64Array(count).fill(-1);
  const labels = new Int32Array(count);
  for (let c = 0, at = 4 * count; c < classes; c++) {
    for (let i = 0; i < count; i++, at++) {
      if (numbers[at] > scores[i]) {
        scores[i] = numbers[at];
        labels[i] = c;
      }
    }
  }
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0; i < count; i++) {
    if (!(scores[i] > detector.threshold)) continue;
    const number = (/** @type {number} */ channel) => numbers[channel * count + i];
    const marks = Array.from({ length: points }, (_, k) => /** @type {[number, number]} */ ([number(4 + classes + 3 * k), number(5 + classes + 3 * k)]));
    found.push({ score: scores[i], label: labels[i], box: corners(number(0), number(1), number(2), number(3)), points: marks });
  }
  return found;
}

/** [n, 6]: left, top, right, bottom, score, class; nothing is left to thin out (YOLOv10, exports with `end2end`). @param {Detector} detector */
function yolov10(detector) {
  const [numbers, [count, width]] = detector.shaped("out", 2);
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0, at = 0; i < count; i++, at += width) {
    if (!(numbers[at + 4] > detector.threshold)) continue;
    found.push({ score: numbers[at + 4], label: Math.trunc(numbers[at + 5]), box: [numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]], points: [] });
  }
  return found;
}

/** Offsets from anchors: boxes [n, 4 + 2 * points] and scores [n, classes] (TensorFlow's SSD, BlazeFace). @param {Detector} detector */
function ssd(detector) {
  const [numbers, [, width]] = detector.shaped("boxes", 2);
  const [scores, [count, classes]] = detector.shaped("scores", 2);
  const { anchors: given, variances, order, exponential, points: marks } = detector.parameters;
  const anchors = given ?? [];
  if (anchors.length !== 4 * count) {
    throw new EdgeInferError(`the detector gives ${count} boxes, and the definition has ${Math.floor(anchors.length / 4)} anchors`, "execution_error", {
      hint: '"anchors": four numbers for each box',
    });
  }
  const [byY, byX, byHeight, byWidth] = variances;
  const [across, down] = detector.size;
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0; i < count; i++) {
    const { score, label } = detector.best(part(scores, i * classes, (i + 1) * classes));
    if (!(score > detector.threshold)) continue;
    const at = i * width;
    const [anchorX, anchorY, anchorWidth, anchorHeight] = anchors.slice(4 * i, 4 * i + 4);
    const [first, second, third, fourth] = [numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]];
    const [y, x, h, w] = order === "yxyx" ? [first, second, third, fourth] : [second, first, fourth, third];
    const [centerX, centerY] = [(x / byX) * anchorWidth + anchorX, (y / byY) * anchorHeight + anchorY];
    const sizes = [w / byWidth, h / byHeight];
    const [boxWidth, boxHeight] = exponential ? sizes.map(limitedExp) : sizes;
    const box = corners(centerX * across, centerY * down, boxWidth * anchorWidth * across, boxHeight * anchorHeight * down);
    const points = Array.from({ length: marks }, (_, k) => {
      const px = ((numbers[at + 4 + 2 * k] / byX) * anchorWidth + anchorX) * across;
      return /** @type {[number, number]} */ ([px, ((numbers[at + 5 + 2 * k] / byY) * anchorHeight + anchorY) * down]);
    });
    found.push({ score, label, box, points });
  }
  return found;
}

/** For each stride classes, objectness, boxes and five points; offsets count from the cell's corner (YuNet). @param {Detector} detector */
function yunet(detector) {
  const unit = (/** @type {number} */ value) => Math.min(Math.max(value, 0), 1);
  /** @type {Detection[]} */
  const found = [];
  for (const stride of detector.parameters.strides.map(Math.trunc)) {
    const [classes, objects, boxes, points] = ["cls", "obj", "bbox", "kps"].map((what) => flat(detector.outputs[`${what}_${stride}`]));
    const columns = Math.floor(detector.size[0] / stride);
    for (let i = 0; i < columns * Math.floor(detector.size[1] / stride); i++) {
      const score = Math.sqrt(unit(classes[i]) * unit(objects[i]));
      if (!(score > detector.threshold)) continue;
      const [row, column] = [Math.floor(i / columns), i % columns];
      const [x, y] = [(column + boxes[4 * i]) * stride, (row + boxes[4 * i + 1]) * stride];
      const [w, h] = [limitedExp(boxes[4 * i + 2]) * stride, limitedExp(boxes[4 * i + 3]) * stride];
      const marks = Array.from({ length: 5 }, (_, k) => {
        const px = (points[10 * i + 2 * k] + column) * stride;
        return /** @type {[number, number]} */ ([px, (points[10 * i + 2 * k + 1] + row) * stride]);
      });
      found.push({ score, label: 0, box: corners(x, y, w, h), points: marks });
    }
  }
  return found;
}

/** [5 + classes, rows, columns]: score `obj^0.6 * class^0.4`, centre by tanh, size by sigmoid (FastestDet). @param {Detector} detector */
function fastestdet(detector) {
  const [numbers, [channels, rows, columns]] = detector.shaped("out", 3);
  const [width, height] = detector.size;
  const cells = rows * columns;
  /** @type {Detection[]} */
  const found = [];
  for (let i = 0; i < cells; i++) {
    let label = 0;
    for (let c = 1; c < channels - 5; c++) if (numbers[(5 + c) * cells + i] > numbers[(5 + label) * cells + i]) label = c;
    const score = Math.max(numbers[i], 0) ** 0.6 * Math.max(numbers[(5 + label) * cells + i], 0) ** 0.4;
    if (!(score > detector.threshold)) continue;
    const [row, column] = [Math.floor(i / columns), i % columns];
    const x = ((column + Math.tanh(numbers[cells + i])) / columns) * width;
    const y = ((row + Math.tanh(numbers[2 * cells + i])) / rows) * height;
    const [w, h] = [sigmoid(numbers[3 * cells + i]) * width, sigmoid(numbers[4 * cells + i]) * height];
    found.push({ score, label, box: corners(x, y, w, h), points: [] });
  }
  return found;
}

/** @type {Record<string, Format>} */
export const FORMATS = {
  decoded: { decode: decoded, needs: ["boxes", "scores"] },
  fastestdet: { decode: fastestdet, needs: ["out"] },
  ssd: { decode: ssd, needs: ["boxes", "scores"] },
  tflite: { decode: tflite, needs: ["boxes", "classes", "scores", "count"] },
  yolov5: { decode: yolov5, needs: ["out"] },
  yolov8: { decode: yolov8, needs: ["out"] },
  yolov10: { decode: yolov10, needs: ["out"] },
  yunet: { decode: yunet, byStride: ["cls", "obj", "bbox", "kps"] },
};
