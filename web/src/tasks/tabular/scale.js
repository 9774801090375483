/** The step `tabular.scale`: `(x - mean) / scale` in float64, for some columns. */

import { EdgeInferError } from "../../errors.js";
import { checkLengths, mapColumn } from "./table.js";

const STEP = "tabular.scale";

/**
 * @param {{columns: string[], mean: number[], scale: number[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: there is not one number for each column, or a scale is zero.
 */
export function prepare({ columns, mean, scale }) {
  checkLengths(STEP, columns, { mean, scale });
  if (scale.includes(0)) {
    throw new EdgeInferError(`pipeline: \`${STEP}\` has the scale 0 for \`${columns[scale.indexOf(0)]}\`, expected another number`, "manifest_error", {
      hint: "write 1 for a column that is always the same",
      details: { field: "scale" },
    });
  }
  return (/** @type {import("./table.js").Table} */ table) => {
    columns.forEach((name, i) => mapColumn(table, name, STEP, (x) => (x - mean[i]) / scale[i]));
    return table;
  };
}
