/** The step `tabular.tensor`: the columns side by side as the one input of a model. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";
import { wrongRow } from "./table.js";

/**
 * A tensor [columns] of one row, and [rows, columns] of a table.
 *
 * @param {{}} _parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the input is neither float32 nor float64.
 */
export function prepare(_parameters, place) {
  const spec = place.spec();
  if (spec.dtype !== "float32" && spec.dtype !== "float64") {
    throw new EdgeInferError(`pipeline: \`tabular.tensor\` makes float32 or float64, and input \`${specText(spec)}\` is not`, "manifest_error", {
      hint: "convert a model that takes float32",
    });
  }
  const array = spec.dtype === "float32" ? Float32Array : Float64Array;
  return (/** @type {import("./table.js").Table} */ table) => {
    const [width, all] = [spec.shape.at(-1), [...table.columns]];
    if (typeof width === "number" && width !== all.length) {
      throw new EdgeInferError(`pipeline: input \`${specText(spec)}\` has ${width} columns, and the steps ${all.length}`, "manifest_error", {
        hint: `name ${width} columns in \`tabular.columns\``,
      });
    }
    const data = new array(table.rows * all.length);
    all.forEach(([name, values], place) => {
      if (Array.isArray(values)) {
        throw new EdgeInferError(`pipeline: the column \`${name}\` holds texts`, "manifest_error", { hint: "`tabular.categories` makes numbers of them" });
      }
      values.forEach((value, row) => {
        const at = row * all.length + place;
        data[at] = value;
        if (Number.isFinite(value) && !Number.isFinite(data[at])) {
          throw wrongRow(table, row, `\`${name}\` becomes ${value}, too large for float32`, "numbers of at most 3.4e38");
        }
      });
    });
    return { data, dtype: spec.dtype, shape: table.isRow ? [all.length] : [table.rows, all.length] };
  };
}
