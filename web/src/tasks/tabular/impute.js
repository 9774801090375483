/** The step `tabular.impute`: a number in the place of each missing one. */

import { checkLengths, mapColumn } from "./table.js";

const STEP = "tabular.impute";

/**
 * @param {{columns: string[], values: number[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {import("../../errors.js").EdgeInferError} `manifest_error`: there is not one number for each column.
 */
export function prepare({ columns, values }) {
  checkLengths(STEP, columns, { values });
  return (/** @type {import("./table.js").Table} */ table) => {
    columns.forEach((name, i) => mapColumn(table, name, STEP, (x) => (Number.isNaN(x) ? values[i] : x)));
    return table;
  };
}
