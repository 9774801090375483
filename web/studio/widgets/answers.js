/** Draws answers: labels with bars, found boxes, texts, tensors; whatever else it is, as JSON. */

import { bars, h } from "../parts.js";

/** @typedef {import("../../src/tensors.js").Tensor} Tensor */
const SHOWN_VALUES = 12;
const SHOWN_ROWS = 12;
/** The most values that are looked through for their range. */
const MAX_SCANNED = 2 ** 20;

/**
 * @param {Record<string, Tensor>} tensors
 * @returns {HTMLElement[]} One element for each: name, type, range and first values.
 */
export function tensorViews(tensors) {
  return Object.entries(tensors).map(([name, { data, dtype, shape }]) => {
    const values = Array.from({ length: Math.min(data.length, MAX_SCANNED) }, (_, i) => Number(data[i]));
    const isNumber = values.length > 0 && values.every(Number.isFinite);
    const [least, most] = isNumber ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : [0, 0];
    const row = values.slice(0, 64).map((value) => h("i", { "--v": most > least ? (value - least) / (most - least) : 0 }));
    const first = Array.from({ length: Math.min(data.length, SHOWN_VALUES) }, (_, i) => shown(data[i])).join("  ");
    return h(".tensor", h("h2", name, " ", h("span.quiet.mono", `${dtype}[${shape.join(", ")}]`)), isNumber && h(".cols", { "aria-hidden": true }, row),
      h("p.mono.small", first, data.length > SHOWN_VALUES ? " …" : ""), isNumber && h("p.small.quiet", `from ${shown(least)} to ${shown(most)}`));
  });
}

/** @param {unknown} value @returns {string} */
function shown(value) {
  const number = Number(value);
  return Number.isInteger(number) || !Number.isFinite(number) ? String(value) : number.toPrecision(5);
}

/**
 * @param {any} answer What a pipeline gives.
 * @returns {HTMLElement[]}
 */
export function answerViews(answer) {
  const list = Array.isArray(answer) ? answer : [answer];
  if (list.length === 0) return [h("p.quiet", "Nothing was found.")];
  if (list.every(isTensor)) return tensorViews(Object.fromEntries(list.map((one, i) => [list.length > 1 ? String(i) : "vector", one])));
  if (answer && Array.isArray(answer.labels) && Array.isArray(answer.scores)) {
    return [bars(answer.labels.slice(0, SHOWN_ROWS).map((/** @type {string} */ text, /** @type {number} */ i) => ({ text, value: answer.scores[i] })))];
  }
  if (list.every((one) => typeof one?.score === "number")) {
    const rows = list.slice(0, SHOWN_ROWS).map((one) => ({ text: nameOf(one), value: one.score }));
    return [bars(rows), list.length > SHOWN_ROWS ? h("p.small.quiet", `and ${list.length - SHOWN_ROWS} more`) : h("")];
  }
  return [h("pre.json", { tabIndex: 0 }, JSON.stringify(answer, (_, value) => (ArrayBuffer.isView(value) ? `${value.constructor.name}(${/** @type {any} */ (value).length})` : value), 2))];
}

/** @param {any} one @returns {string} What a row of an answer is called. */
function nameOf(one) {
  const name = one.label ?? one.answer ?? one.entity_group ?? one.entity ?? one.token_str ?? one.document ?? one.text ?? "";
  const words = one.word ? `${one.word}: ${name}` : String(name);
  if (typeof one.start === "number" && typeof one.end === "number" && !one.word && !one.answer) return `${one.start.toFixed(2)} to ${one.end.toFixed(2)} s ${words}`;
  return words || (typeof one.index === "number" ? `document ${one.index}` : "");
}

/** @param {any} one */
function isTensor(one) {
  return ArrayBuffer.isView(one?.data) && Array.isArray(one.shape);
}
