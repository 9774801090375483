/** Answers of pipelines as JSON, and whether two of them are the same: by label, score and overlap of boxes. As `edge_infer.tasks.agreement`. */

import { flat } from "./values.js";

/** How far a score may be off, and how much boxes and masks must overlap (intersection over union). */
export const SCORE = 0.02;
const OVERLAP = 0.9;
/** A class that is not more likely than this for a token may be another one elsewhere. */
const UNSURE = 0.55;
const MAX_VALUES = 64;
/** What rounding may leave of a number that is zero. */
const TINY = 1e-5;
const GRID = 16;
const BOX = ["xmin", "ymin", "xmax", "ymax"];
/** What names one of several answers: a class, a word of the vocabulary, or a document. */
const NAMES = ["label", "token", "corpus_id"];

/**
 * @param {any} answer
 * @returns {any} It as JSON: numbers of six digits, long tensors thinned out, pictures as a grid of 16 x 16 points.
 */
export function plain(answer) {
  if (typeof answer === "number") return Number.isFinite(answer) ? Number(answer.toPrecision(6)) : 0;
  if (answer === null || typeof answer !== "object") return answer;
  if (Array.isArray(answer)) return answer.map(plain);
  if (answer.dtype !== undefined && answer.shape !== undefined) {
    const values = Array.from(flat(answer), Number);
    const every = Math.ceil(values.length / MAX_VALUES) || 1;
    return { shape: [...answer.shape], every, values: values.filter((_, i) => i % every === 0).map(plain) };
  }
  if (ArrayBuffer.isView(answer.data) && answer.channels !== undefined) {
    return { width: answer.width, height: answer.height, points: pointsOf(answer) };
  }
  return Object.fromEntries(Object.entries(answer).map(([key, value]) => [key, plain(value)]));
}

/** @param {import("./image/image.js").Image} image @returns {string} It at the middles of 16 x 16 cells, row by row. */
function pointsOf({ data, width, height, channels }) {
  const middle = (/** @type {number} */ cell, /** @type {number} */ size) => Math.floor(((2 * cell + 1) * size) / (2 * GRID));
  const places = Array.from({ length: GRID ** 2 }, (_, i) => middle(Math.floor(i / GRID), height) * width + middle(i % GRID, width));
  return places.map((at) => (data[at * channels] ? "1" : "0")).join("");
}

/**
 * @param {any} expected What is right, of `plain`.
 * @param {any} got What an engine gave; it may have more classes than are expected.
 * @param {number} [least] The score below which detections are not told: those near to it may be there or not.
 * @returns {string} In what the two differ; empty where they are the same.
 */
export function difference(expected, got, least = 0) {
  try {
    return differs(expected, got, least);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return `the answer has another form (${error.message})`;
  }
}

/** @param {any} expected @param {any} got @param {number} least @returns {string} */
function differs(expected, got, least) {
  if (typeof expected === "number" && typeof got === "number") {
    const isOff = Math.abs(got - expected) > SCORE * Math.max(Math.abs(expected), Math.abs(got)) + TINY;
    return isOff ? `${shown(got)}, expected ${shown(expected)}` : "";
  }
  if (Array.isArray(expected)) return ofList(expected, [...got], least);
  if (expected === null || typeof expected !== "object") return expected === got ? "" : `${shown(got)}, expected ${shown(expected)}`;
  if ("values" in expected) return ofTensors(expected, got);
  if ("points" in expected) return ofPictures(expected, got);
  if ("scores" in expected) {
    const pairs = [expected, got].map(({ labels, scores }) => {
      requireLength(labels, scores);
      return labels.map((/** @type {any} */ label, /** @type {number} */ i) => ({ label, score: scores[i] }));
    });
    return ofClasses(pairs[0], pairs[1], "label");
  }
  if ("answer" in expected) return ofSpans(expected, got);
  const names = [...new Set([...Object.keys(expected), ...Object.keys(got)])];
  return names.map((name) => differs(expected[name], got[name], least)).find(Boolean) ?? "";
}

/** @param {any[]} expected @param {any[]} got @param {number} least @returns {string} */
function ofList(expected, got, least) {
  const kinds = [...expected, ...got].filter((one) => one !== null && typeof one === "object" && !Array.isArray(one));
  const has = (/** @type {string} */ name) => (/** @type {any} */ one) => name in one;
  if (kinds.some(has("box"))) return ofBoxes(expected, got, least, "is missing") || ofBoxes(got, expected, least, "is not expected");
  if (kinds.some(has("mask"))) return ofMasks(expected, got);
  if (kinds.some((one) => "entity" in one || "entity_group" in one)) return ofEntities(expected, got) || ofEntities(got, expected);
  if (kinds.length && kinds.every((one) => "label" in one && !("score" in one))) return ofAnything(expected, got);
  const name = kinds.length && NAMES.find((one) => kinds.every(has(one)));
  return name ? ofClasses(expected, got, name) : ofAnything(expected, got);
}

/** @param {any} expected @param {any} got @returns {string} */
function ofTensors(expected, got) {
  if (expected.shape.join() !== got.shape.join()) return `a tensor of shape [${got.shape}], expected [${expected.shape}]`;
  requireLength(expected.values, got.values);
  const largest = Math.max(0, ...expected.values.map(Math.abs));
  const worst = Math.max(0, ...expected.values.map((/** @type {number} */ value, /** @type {number} */ i) => Math.abs(value - got.values[i])));
  return worst <= SCORE * largest ? "" : `a value is ${shown(worst)} off, with the largest at ${shown(largest)}`;
}

/** @param {any} expected @param {any} got @returns {string} Pictures of one size; a few points may be there or not. */
function ofPictures(expected, got) {
  if (expected.width !== got.width || expected.height !== got.height) {
    return `a picture of ${got.width} x ${got.height}, expected ${expected.width} x ${expected.height}`;
  }
  requireLength(expected.points, got.points);
  const apart = [...expected.points].filter((point, i) => point !== got.points[i]).length;
  return apart > (1 - OVERLAP) * GRID ** 2 ? `a picture differs at ${apart} of ${GRID ** 2} points` : "";
}

/** @param {any[]} expected @param {any[]} got @param {string} name @returns {string} */
function ofClasses(expected, got, name) {
  if (!expected.length) return got.length ? `${shown(got)}, expected nothing` : "";
  const [scores, wanted] = [got, expected].map((side) => {
    const found = new Map();
    for (const one of side) if (!found.has(one[name])) found.set(one[name], scoreOf(one)); // two classes of one name: the better one counts
    return found;
  });
  for (const [label, score] of wanted) {
    const close = SCORE * Math.max(1, Math.abs(score));
    if (!scores.has(label)) {
      if (score > 2 * close) return `${shown(label)} is missing, expected at ${score.toFixed(3)}`; // a smaller one may have been pushed off the end
    } else if (Math.abs(scores.get(label) - score) > close) {
      return `${shown(label)} has ${scores.get(label).toFixed(3)}, expected ${score.toFixed(3)}`;
    }
  }
  const [best] = got;
  const first = scores.get(expected[0][name]) ?? expected[0].score;
  const isOther = best[name] !== expected[0][name] && best.score - first > 2 * SCORE * Math.max(1, Math.abs(first));
  return isOther ? `${shown(best[name])} is the best, expected ${shown(expected[0][name])}` : "";
}

/** @param {any} expected @param {any} got @returns {string} */
function ofSpans(expected, got) {
  for (const one of [expected, got]) for (const name of ["start", "end", "answer"]) if (one[name] === undefined) throw new TypeError(`${name} is missing`);
  if (Math.abs(scoreOf(expected) - scoreOf(got)) > SCORE) return `a score of ${got.score.toFixed(3)}, expected ${expected.score.toFixed(3)}`;
  const isSame = expected.start === got.start && expected.end === got.end;
  return isSame || expected.score <= 2 * SCORE ? "" : `${shown(got.answer)}, expected ${shown(expected.answer)}`;
}

/** @param {any[]} expected @param {any[]} got @param {number} least @param {string} said @returns {string} */
function ofBoxes(expected, got, least, said) {
  for (const one of expected) {
    const same = got.filter((other) => other.label === one.label && overlap(one, other) >= OVERLAP);
    if (same.every((other) => Math.abs(scoreOf(other) - scoreOf(one)) > SCORE) && scoreOf(one) - least > SCORE) {
      return `${shown(one.label)} at ${one.score.toFixed(3)} ${said}`;
    }
  }
  return "";
}

/** @param {any} one @param {any} other @returns {number} */
function overlap(one, other) {
  const [a, b] = [one, other].map(({ box }) => BOX.map((side) => numberOf(box[side], side)));
  const [width, height] = [Math.min(a[2], b[2]) - Math.max(a[0], b[0]), Math.min(a[3], b[3]) - Math.max(a[1], b[1])];
  const shared = Math.max(width, 0) * Math.max(height, 0);
  const both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared;
  return both > 0 ? shared / both : Number(a.join() === b.join());
}

/** @param {any[]} expected @param {any[]} got @returns {string} Of masks of the same class; a class that has few points may be there or not. */
function ofMasks(expected, got) {
  const masks = [expected, got].map((side) => new Map(side.map(({ label, mask }) => [label, mask.points])));
  const few = (1 - OVERLAP) * GRID ** 2;
  for (const label of new Set([...masks[0].keys(), ...masks[1].keys()])) {
    const [a, b] = masks.map((side) => side.get(label) ?? "0".repeat(GRID ** 2));
    requireLength(a, b);
    const both = [...a].filter((point, i) => point === "1" || b[i] === "1").length;
    const shared = [...a].filter((point, i) => point === "1" && b[i] === "1").length;
    if (both - shared > few || (both > few && shared < OVERLAP * both)) {
      return `the mask of ${shown(label)} overlaps by ${(shared / both).toFixed(2)}, expected ${OVERLAP}`;
    }
  }
  return "";
}

/** @param {any[]} expected @param {any[]} got @returns {string} */
function ofEntities(expected, got) {
  const key = (/** @type {any} */ one) => `${shown(one.entity ?? one.entity_group)} from ${one.start} to ${one.end}`;
  const scores = new Map(got.map((one) => [key(one), scoreOf(one)]));
  for (const one of expected) {
    const score = scores.get(key(one));
    if (scoreOf(one) > UNSURE && (score === undefined || Math.abs(score - one.score) > SCORE)) {
      return `${key(one)} has ${(score ?? 0).toFixed(3)}, expected ${one.score.toFixed(3)}`;
    }
  }
  return "";
}

/** @param {any} expected @param {any} got @returns {string} */
function ofAnything(expected, got) {
  if (typeof expected === "number" && typeof got === "number") {
    return Math.abs(expected - got) <= SCORE * Math.max(1, Math.abs(expected)) ? "" : `${shown(got)}, expected ${shown(expected)}`;
  }
  const areObjects = [expected, got].every((one) => one !== null && typeof one === "object");
  if (!areObjects) return expected === got ? "" : `${shown(got)}, expected ${shown(expected)}`;
  const [names, others] = [expected, got].map((one) => Object.keys(one).sort());
  if (names.join() !== others.join()) return `${shown(got)}, expected ${shown(expected)}`;
  return names.map((name) => ofAnything(expected[name], got[name])).find(Boolean) ?? "";
}

/** @param {any} one @returns {number} */
function scoreOf({ score }) {
  return numberOf(score, "score");
}

/** @param {any} value @param {string} name @returns {number} */
function numberOf(value, name) {
  if (typeof value === "number") return value;
  throw new TypeError(`${name} is ${shown(value)}`);
}

/** @param {ArrayLike<any>} one @param {ArrayLike<any>} other */
function requireLength(one, other) {
  if (one.length !== other.length) throw new TypeError(`${other.length} values, expected ${one.length}`);
}

/** @param {any} value @returns {string} */
function shown(value) {
  const text = typeof value === "number" ? String(Number(value.toPrecision(6))) : String(JSON.stringify(value));
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
