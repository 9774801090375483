/** Columns of one length on their way through a pipeline. The same as `edge_infer.tasks.tabular.table`. */

import { EdgeInferError } from "../../errors.js";
import { didYouMean, listed } from "../words.js";

/** @typedef {Float64Array | (string | null)[]} Column Numbers, NaN for a missing one; or texts, null for a missing one. */
/** @typedef {{columns: Map<string, Column>, rows: number, isRow: boolean}} Table */

/**
 * @param {Table} table
 * @param {number} row
 * @param {string} reason
 * @param {string} hint
 * @returns {EdgeInferError} The error of a row that cannot go on.
 */
export function wrongRow({ isRow, rows }, row, reason, hint) {
  return new EdgeInferError(`${isRow || rows === 1 ? "" : `row ${row}: `}${reason}`, "input_error", { hint });
}

/**
 * @param {Table} table
 * @param {number} row
 * @param {string} name
 * @param {string | number | null} value
 * @throws {EdgeInferError} `input_error`: the value is missing or infinite.
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
 * @throws {EdgeInferError} `manifest_error`: the table has none of this name.
 */
export function columnOf({ columns }, name, step) {
  const found = columns.get(name);
  if (found) return found;
  const known = [...columns.keys()];
  throw new EdgeInferError(`pipeline: \`${step}\` names the column \`${name}\`, which the steps before it do not`, "manifest_error", {
    hint: didYouMean(name, known) || `choose from ${listed(known.slice(0, 20))}`,
    details: { field: name },
  });
}

/**
 * Replace the numbers of a column.
 *
 * @param {Table} table
 * @param {string} name
 * @param {string} step
 * @param {(number: number) => number} change
 * @throws {EdgeInferError} `manifest_error`: the table has no such column, or it holds texts.
 */
export function mapColumn(table, name, step, change) {
  const values = columnOf(table, name, step);
  if (Array.isArray(values)) {
    throw new EdgeInferError(`pipeline: \`${step}\` takes numbers, and the column \`${name}\` holds texts`, "manifest_error", {
      hint: "`tabular.categories` makes numbers of them",
      details: { field: name },
    });
  }
  table.columns.set(name, values.map(change));
}

/**
 * @param {string} step
 * @param {string[]} columns
 * @param {Record<string, number[]>} parameters
 * @throws {EdgeInferError} `manifest_error`: a list has another length than there are columns.
 */
export function checkLengths(step, columns, parameters) {
  for (const [name, { length }] of Object.entries(parameters)) {
    if (length === columns.length) continue;
    throw new EdgeInferError(`pipeline: \`${step}\` has ${columns.length} \`columns\` and ${length} numbers in \`${name}\`, expected one for each`, "manifest_error", {
      hint: `write ${columns.length} numbers in \`${name}\``,
      details: { field: name },
    });
  }
}

/**
 * Check that a step names each of its columns once, and has one of each parameter for it.
 *
 * @param {string} step
 * @param {string[]} names Its columns.
 * @param {string[]} nullable Those of them that may hold missing values.
 * @param {Record<string, unknown[]>} parameters The lists that go with the names.
 * @throws {EdgeInferError} `manifest_error`: a name is there twice, a list has another length, or `nullable` names no column.
 */
export function checkNames(step, names, nullable, parameters) {
  const again = twice(names);
  for (const [name, { length }] of Object.entries(parameters)) {
    if (length === names.length && length > 0 && again === undefined) continue;
    const found = again === undefined ? `${names.length} \`names\` and ${length} \`${name}\`` : `the name \`${again}\` twice`;
    throw new EdgeInferError(`pipeline: \`${step}\` has ${found}, expected each name once, and one of \`${name}\` for it`, "manifest_error", {
      hint: again === undefined ? `write as many \`${name}\` as \`names\`` : "leave one of them out",
      details: { field: "names" },
    });
  }
  const known = new Set(names);
  for (const one of [...nullable].sort()) {
    if (known.has(one)) continue;
    throw new EdgeInferError(`pipeline: \`${step}\` has no column \`${one}\`, which \`nullable\` names`, "manifest_error", {
      hint: didYouMean(one, names) || `leave "${one}" out of "nullable"`,
      details: { field: "nullable" },
    });
  }
}

/** @template T @param {T[]} values @returns {T | undefined} The first value that is there before. */
export function twice(values) {
  const seen = new Set();
  return values.find((value) => seen.size === seen.add(value).size);
}
