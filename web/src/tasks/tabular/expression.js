/**
 * Expressions over columns: the grammar of `edge_infer.tasks.tabular.expression_tree` and the bits of
 * `edge_infer.tasks.tabular.plain_operators`. NaN is a missing number.
 */

import { EdgeInferError } from "../../errors.js";
import { didYouMean, listed, shown } from "../words.js";

/** @typedef {import("./table.js").Column} Column */

const BINARY = ["+", "-", "*", "/", "==", "!=", "<", "<=", ">", ">=", "&", "|", "fill_null"];
const UNARY = ["neg", "abs", "not", "log", "log1p", "sqrt", "floor", "is_null", "length"];
const WORDS = [...BINARY, ...UNARY, "col", "text", "clip", "when", "lookup"];
const OF_TEXTS = ["==", "!=", "fill_null", "is_null", "length", "when"];
/** What the words take that are no operators. @type {Record<string, string>} */
const FORMS = { col: '"NAME"', text: '"TEXT"', clip: "X, LOW, HIGH", when: "CONDITION, X, Y", lookup: 'X, ["a", "b"], [0, 1]' };
const [MAX_PARTS, MAX_DEPTH, MAX_GROUPS] = [4096, 64, 2 ** 16];

/**
 * @param {unknown} tree
 * @param {string} where
 * @returns {string[]} The names of its columns.
 * @throws {EdgeInferError} `manifest_error`: it is no expression; the message says which part is wrong.
 */
export function check(tree, where) {
  const names = new Set();
  /** @type {[any, number][]} */
  const left = [[tree, 0]];
  for (let parts = 1; left.length; parts++) {
    const [part, depth] = /** @type {[any, number]} */ (left.pop());
    if (parts > MAX_PARTS || depth > MAX_DEPTH) {
      throw new EdgeInferError(`${where} is too large, expected at most ${MAX_PARTS} parts and ${MAX_DEPTH} inside one another`, "manifest_error", {
        hint: "compute parts of it as columns of their own first",
      });
    }
    if (part === null || Number.isFinite(part)) continue;
    if (!Array.isArray(part) || typeof part[0] !== "string") {
      throw new EdgeInferError(`${where} has ${shown(part)}, expected a number, null or a list that begins with a word`, "manifest_error", { hint: '["col", "NAME"]' });
    }
    const [word, ...given] = part;
    if (!WORDS.includes(word)) {
      throw new EdgeInferError(`${where} has the unknown word ${shown(word)}`, "manifest_error", { hint: didYouMean(word, WORDS) || `choose from ${listed(WORDS)}` });
    }
    const inside = partsOf(word, given);
    if (inside === null) {
      throw new EdgeInferError(`${where}: ${shown(part)} is not what \`${word}\` takes`, "manifest_error", { hint: formOf(word), details: { field: word } });
    }
    if (word === "col") names.add(given[0]);
    for (const one of inside) left.push([one, depth + 1]);
  }
  return [...names].sort();
}

/** @param {string} word @param {any[]} given @returns {any[] | null} The expressions inside; null where the word takes something else. */
function partsOf(word, given) {
  if (word === "col" || word === "text") return given.length === 1 && typeof given[0] === "string" ? [] : null;
  if (word === "clip") return given.length === 3 && given.slice(1).every((one) => one === null || Number.isFinite(one)) ? [given[0]] : null;
  if (word === "lookup") return given.length === 3 && isLookup(given[1], given[2]) ? [given[0]] : null;
  return given.length === (word === "when" ? 3 : BINARY.includes(word) ? 2 : 1) ? given : null;
}

/** @param {string} word @returns {string} How it is written with what it takes. */
function formOf(word) {
  return `["${word}", ${FORMS[word] ?? (BINARY.includes(word) ? "X, Y" : "X")}]`;
}

/** @param {any} keys @param {any} values @returns {boolean} */
function isLookup(keys, values) {
  if (!Array.isArray(keys) || !Array.isArray(values) || keys.length !== values.length || keys.length > MAX_GROUPS) return false;
  const isAlike = keys.every((key) => typeof key === "string") || keys.every(Number.isFinite);
  return isAlike && new Set(keys).size === keys.length && values.every(Number.isFinite);
}

/**
 * @param {any} tree A checked expression.
 * @param {Map<string, Column>} columns All that it names.
 * @param {number} rows
 * @returns {Column} Its values: numbers, NaN for a missing one; or texts.
 * @throws {EdgeInferError} `manifest_error`: an operator for numbers is given texts, or one for texts numbers.
 */
export function evaluate(tree, columns, rows) {
  if (!Array.isArray(tree)) return new Float64Array(rows).fill(tree ?? NaN);
  const [word, ...given] = tree;
  const part = (/** @type {any} */ one) => evaluate(one, columns, rows);
  if (word === "col") return /** @type {Column} */ (columns.get(given[0]));
  if (word === "text") return new Array(rows).fill(given[0]);
  if (word === "lookup") return lookedUp(part(given[0]), given[1], given[2]);
  if (word === "clip") {
    const [low, high] = [given[1] ?? -Infinity, given[2] ?? Infinity];
    return ofNumbers(word, part(given[0])).map((x) => (x < low ? low : x > high ? high : x));
  }
  const values = given.map(part);
  const first = word === "when" ? 1 : 0;
  if (values.slice(first).some(Array.isArray)) {
    const asTexts = values.map((one, i) => (i >= first && given[i] === null ? new Array(rows).fill(null) : one)); // beside texts it is a missing text
    return ofTexts(word, asTexts, asTexts.slice(first).map(Array.isArray));
  }
  if (word === "length") {
    throw new EdgeInferError("pipeline: `length` of an expression takes texts, and is given numbers", "manifest_error", {
      hint: "give it a column of the type `string`",
      details: { field: word },
    });
  }
  const numbers = values.map((one) => ofNumbers(word, one));
  const operator = OPERATORS[word];
  const made = new Float64Array(rows);
  for (let row = 0; row < rows; row++) made[row] = operator(numbers[0][row], numbers[1]?.[row], numbers[2]?.[row]);
  return made;
}

/** @param {string} word @param {Column} values @returns {Float64Array} */
function ofNumbers(word, values) {
  if (!Array.isArray(values)) return values;
  throw ofTextsError(word, "takes numbers, and is given texts");
}

/** @param {string} word @param {string} said */
function ofTextsError(word, said) {
  const hint = "make numbers of the texts first, by `lookup`";
  return new EdgeInferError(`pipeline: \`${word}\` of an expression ${said}`, "manifest_error", { hint, details: { field: word } });
}

/** @param {string} word @param {Column[]} values @param {boolean[]} texts Which of them are. @returns {Column} */
function ofTexts(word, values, texts) {
  const all = !texts.includes(false);
  if (!OF_TEXTS.includes(word) || !all) {
    const kinds = OF_TEXTS.includes(word) ? "all numbers or all texts" : "numbers";
    throw ofTextsError(word, `is given texts${all ? "" : " and numbers"}, expected ${kinds}`);
  }
  const [a, b, c] = /** @type {(string | null)[][]} */ (values);
  if (word === "is_null") return Float64Array.from(a, (one) => Number(one === null));
  if (word === "length") return Float64Array.from(a, (one) => (one === null ? NaN : [...one].length));
  if (word === "fill_null") return a.map((one, row) => one ?? b[row]);
  if (word === "when") return Array.from(ofNumbers(word, values[0]), (one, row) => (isTrue(one) ? b[row] : c[row]));
  return Float64Array.from(a, (one, row) => (one === null || b[row] === null ? NaN : Number((one === b[row]) === (word === "=="))));
}

/** @param {Column} asked @param {any[]} keys @param {number[]} values @returns {Float64Array} */
function lookedUp(asked, keys, values) {
  if (keys.length && Array.isArray(asked) !== (typeof keys[0] === "string")) {
    const [held, other] = Array.isArray(asked) ? ["texts", "numbers"] : ["numbers", "texts"];
    throw new EdgeInferError(`pipeline: a \`lookup\` has keys that are ${other}, and its column holds ${held}`, "manifest_error", {
      hint: `write its keys as ${held}`,
      details: { field: "lookup" },
    });
  }
  const known = new Map(keys.map((key, i) => [key, values[i]]));
  return Float64Array.from(/** @type {any[]} */ (asked), (one) => known.get(one) ?? NaN);
}

const isTrue = (/** @type {number} */ x) => x !== 0 && !Number.isNaN(x);
const compared = (/** @type {(a: number, b: number) => boolean} */ compare) => (/** @type {number} */ a, /** @type {number} */ b) =>
  Number.isNaN(a) || Number.isNaN(b) ? NaN : Number(compare(a, b));

/** ln 2 in two parts: the constants of fdlibm's e_log.c. */
const [LN2_HIGH, LN2_LOW] = [6.93147180369123816490e-1, 1.90821492927058770002e-10];
const ODD = Array.from({ length: 13 }, (_, i) => 1 / (25 - 2 * i));
const VIEW = new DataView(new ArrayBuffer(8));

/** @param {number} x @returns {number} The natural logarithm, from additions, multiplications and divisions alone. */
function log(x) {
  if (Number.isNaN(x) || x < 0) return NaN;
  if (x === 0 || x === Infinity) return x === 0 ? -Infinity : x;
  const shift = x < 2 ** -1022 ? 54 : 0;
  VIEW.setFloat64(0, x * 2 ** shift);
  const high = VIEW.getUint32(0);
  let k = (high >>> 20) - 1022 - shift;
  VIEW.setUint32(0, (high & 0xfffff) | (1022 << 20));
  let m = VIEW.getFloat64(0);
  if (m < 0.7071067811865476) [m, k] = [m * 2, k - 1];
  const s = (m - 1) / (m + 1);
  const z = s * s;
  let total = 0;
  for (const factor of ODD) total = total * z + factor;
  return k * LN2_HIGH + (k * LN2_LOW + 2 * s * total);
}

/** @param {number} x @returns {number} */
function log1p(x) {
  const u = 1 + x;
  return u === 1 || u === Infinity ? x : log(u) * (x / (u - 1));
}

/** @type {Record<string, (a: number, b: number, c: number) => number>} */
const OPERATORS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "==": compared((a, b) => a === b),
  "!=": compared((a, b) => a !== b),
  "<": compared((a, b) => a < b),
  "<=": compared((a, b) => a <= b),
  ">": compared((a, b) => a > b),
  ">=": compared((a, b) => a >= b),
  "&": (a, b) => (a === 0 || b === 0 ? 0 : Number.isNaN(a) || Number.isNaN(b) ? NaN : 1),
  "|": (a, b) => (isTrue(a) || isTrue(b) ? 1 : Number.isNaN(a) || Number.isNaN(b) ? NaN : 0),
  fill_null: (a, b) => (Number.isNaN(a) ? b : a),
  neg: (a) => -a,
  abs: Math.abs,
  not: (a) => (Number.isNaN(a) ? NaN : Number(a === 0)),
  log,
  log1p,
  sqrt: Math.sqrt,
  floor: Math.floor,
  is_null: (a) => Number(Number.isNaN(a)),
  when: (condition, a, b) => (isTrue(condition) ? a : b),
};
