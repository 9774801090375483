/** Columns of one length on their way through a pipeline. The same as `edge_infer.tasks.tabular.table`. */

import { InferError } from "../../errors.js";

/** @typedef {Float64Array | (string | null)[]} Column Numbers, NaN for a missing one; or texts, null for a missing one. */
/** @typedef {{columns: Map<string, Column>, rows: number, isRow: boolean}} Table */

/**
 * @param {Table} table
 * @param {number} row
 * @param {string} reason
 * @param {string} hint
 * @returns {InferError} The error of a row that cannot go on.
 */
export function wrongRow({ isRow, rows }, row, reason, hint) {
  return new InferError(`${isRow || rows === 1 ? "" : `row ${row}: `}${reason}`, "input_error", { hint });
}

/**
 * @param {Table} table
 * @param {number} row
 * @param {string} name
 * @param {string | number | null} value
 * @throws {InferError} `input_error`: the value is missing or infinite.
 */
export function refuseMissing(table, row, name, value) {
  if (value !== null && !(typeof value === "number" && !Number.isFinite(value))) return;
  const said = value === Infinity || value === -Infinity ? "infinite" : "missing";
  throw wrongRow(table, row, `\`${name}\` is ${said}`, `give a value for \`${name}\`, or leave the row out`);
}

/**
 * @param {Table} table
 * @param {string} name
 * @param {string} step
 * @returns {Column} A column that a step names.
 * @throws {InferError} `manifest_error`: the table has none of this name.
 */
export function columnOf({ columns }, name, step) {
  const found = columns.get(name);
  if (found) return found;
  throw new InferError(`pipeline: \`${step}\` names the column \`${name}\`, which \`tabular.columns\` does not`, "manifest_error");
}

/**
 * Replace the numbers of a column.
 *
 * @param {Table} table
 * @param {string} name
 * @param {string} step
 * @param {(number: number) => number} change
 * @throws {InferError} `manifest_error`: the table has no such column, or it holds texts.
 */
export function mapColumn(table, name, step, change) {
  const values = columnOf(table, name, step);
  if (Array.isArray(values)) {
    throw new InferError(`pipeline: \`${step}\` takes numbers, and the column \`${name}\` holds texts`, "manifest_error");
  }
  table.columns.set(name, values.map(change));
}

/**
 * @param {string} step
 * @param {string[]} columns
 * @param {Record<string, number[]>} parameters
 * @throws {InferError} `manifest_error`: a list has another length than there are columns.
 */
export function checkLengths(step, columns, parameters) {
  for (const [name, { length }] of Object.entries(parameters)) {
    if (length === columns.length) continue;
    throw new InferError(`pipeline: \`${step}\` has ${columns.length} \`columns\` and ${length} numbers in \`${name}\``, "manifest_error", {
      details: { field: name },
    });
  }
}
