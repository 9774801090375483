/** The step `tabular.derive`: other columns in the place of those that were given, each computed from them by an expression. */

import { check, evaluate } from "./expression.js";
import { checkNames, columnOf, refuseMissing } from "./table.js";

const STEP = "tabular.derive";

/**
 * @param {{names: string[], expressions: unknown[], nullable: string[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: there is not one expression for each name, one is none, or `nullable` names no column.
 */
export function prepare({ names, expressions, nullable }) {
  checkNames(STEP, names, nullable, { expressions });
  const needed = names.map((name, i) => check(expressions[i], `pipeline: \`${STEP}\` of \`${name}\``));
  return (/** @type {import("./table.js").Table} */ table) => {
    /** @type {import("./table.js").Table} */
    const made = { columns: new Map(), rows: table.rows, isRow: table.isRow };
    names.forEach((name, i) => {
      const given = new Map(needed[i].map((one) => [one, columnOf(table, one, STEP)]));
      const found = evaluate(expressions[i], given, table.rows);
      const values = Array.isArray(found) ? found : found.map((one) => (Number.isNaN(one) ? NaN : one)); // one NaN for all that is missing
      if (!nullable.includes(name)) values.forEach((/** @type {any} */ one, /** @type {number} */ row) => refuseMissing(table, row, name, one));
      made.columns.set(name, values);
    });
    return made;
  };
}
