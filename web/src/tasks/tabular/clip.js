/** The step `tabular.clip`: numbers kept between two bounds, for some columns. */

import { checkLengths, mapColumn } from "./table.js";

const STEP = "tabular.clip";

/**
 * NaN stays NaN.
 *
 * @param {{columns: string[], low: number[], high: number[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {import("../../errors.js").EdgeInferError} `manifest_error`: there are not two bounds for each column.
 */
export function prepare({ columns, low, high }) {
  checkLengths(STEP, columns, { low, high });
  return (/** @type {import("./table.js").Table} */ table) => {
    columns.forEach((name, i) => mapColumn(table, name, STEP, (x) => (x < low[i] ? low[i] : x > high[i] ? high[i] : x)));
    return table;
  };
}
