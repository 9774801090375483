/** Raw tables: an object of values is one row, an object of arrays is a table of columns. The same as `edge_infer.tasks.tabular.rows`. */

import { EdgeInferError } from "../../errors.js";
import { isObject } from "../check-parameters.js";

const HINT = '{"age": 41, "city": "Bern"}, or {"age": [41, 52], "city": ["Bern", "Chur"]}';

/**
 * @param {any} value
 * @returns {Record<string, any>[]} The rows of a raw table.
 * @throws {EdgeInferError} `input_error`: it is neither a row nor a table, or its columns differ in length.
 */
export function rowsOf(value) {
  if (!isObject(value) || Object.keys(value).length === 0 || ArrayBuffer.isView(value)) {
    throw new EdgeInferError(`${Array.isArray(value) ? "a list" : typeof value} is neither a row nor a table`, "input_error", { hint: HINT });
  }
  if (!isTable(value)) return [value];
  const lengths = Object.entries(value).map(([name, column]) => /** @type {[string, number]} */ ([name, isColumn(column) ? column.length : -1]));
  const [first, rows] = /** @type {[string, number]} */ (lengths.find(([, length]) => length >= 0));
  for (const [name, length] of lengths) {
    if (length === rows && length >= 0) continue;
    const said = length < 0 ? "one value" : `${length} values`;
    throw new EdgeInferError(`column \`${name}\` has ${said}, and \`${first}\` has ${rows}`, "input_error", { hint: "give columns of one length" });
  }
  const columns = /** @type {[string, ArrayLike<any>][]} */ (Object.entries(value));
  return Array.from({ length: rows }, (_, i) => Object.fromEntries(columns.map(([name, column]) => [name, column[i]])));
}

/** @param {any[]} answers @param {any} value @returns {any} The answer to one row, or those to the rows of a table. */
export function answerOf(answers, value) {
  return isTable(value) ? answers : answers[0];
}

/** @param {Record<string, unknown>} value @returns {boolean} Whether an object holds columns, and not the values of one row. */
function isTable(value) {
  return Object.values(value).some(isColumn);
}

/** @param {any} value @returns {value is ArrayLike<any>} */
function isColumn(value) {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && "length" in value);
}
