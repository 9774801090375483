/** The step `tabular.categories`: the number of each category, counted from zero. */

import { EdgeInferError } from "../../errors.js";
import { didYouMean, shown } from "../words.js";
import { columnOf, twice, wrongRow } from "./table.js";

/**
 * A missing value becomes NaN; an unknown category is an error, NaN or -1.
 *
 * @param {{values: Record<string, (string | number)[]>, unknown: "error" | "missing" | "minus_one"}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: a category is there twice.
 */
export function prepare({ values, unknown }) {
  const numbers = Object.entries(values).map(([name, known]) => {
    const found = new Map(known.map((value, i) => [value, i]));
    if (found.size !== known.length) {
      throw new EdgeInferError(`pipeline: \`tabular.categories\` has the category ${shown(twice(known))} of \`${name}\` twice, expected each once`, "manifest_error", {
        hint: 'leave one of them out of "values"',
        details: { field: name },
      });
    }
    return /** @type {[string, Map<any, number>]} */ ([name, found]);
  });
  const other = { error: undefined, missing: NaN, minus_one: -1 }[unknown];
  return (/** @type {import("./table.js").Table} */ table) => {
    for (const [name, known] of numbers) {
      const given = Array.from(/** @type {any[]} */ (columnOf(table, name, "tabular.categories")));
      const made = given.map((value, row) => {
        const found = known.get(value) ?? (value === null || Number.isNaN(value) ? NaN : other);
        if (found !== undefined) return found;
        const names = [...known.keys()];
        const hint = didYouMean(String(value), names.map(String)) || `choose from ${names.slice(0, 8).join(", ")}${names.length > 8 ? ", ..." : ""}`;
        throw wrongRow(table, row, `\`${name}\` is ${shown(value)}, which is not one of its ${names.length} categories`, hint);
      });
      table.columns.set(name, Float64Array.from(made));
    }
    return table;
  };
}
