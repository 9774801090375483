/** The step `tabular.columns`: the columns of a model by name and type, in its order. */

import { EdgeInferError } from "../../errors.js";
import { didYouMean, listed, shown } from "../words.js";
import { checkNames, refuseMissing, wrongRow } from "./table.js";

/** @typedef {import("./table.js").Table} Table */
const TYPES = ["float32", "float64", "int64", "bool", "string"];
/** Whole numbers up to here are exact in float64. */
const EXACT = 2 ** 53;

/**
 * Find each column and check its values; further columns are ignored.
 *
 * @param {{names: string[], types: string[], nullable: string[]}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: there is not one known type for each name, or a name is there twice.
 */
export function prepare({ names, types, nullable }) {
  checkNames("tabular.columns", names, nullable, { types });
  for (const one of types) {
    if (TYPES.includes(one)) continue;
    throw new EdgeInferError(`pipeline: \`tabular.columns\` has the type \`${one}\`, expected ${listed(TYPES)}`, "manifest_error", {
      hint: didYouMean(one, TYPES) || `choose from ${listed(TYPES)}`,
      details: { field: "types" },
    });
  }
  return (/** @type {Record<string, any>} */ value) => {
    const missing = names.filter((name) => !Object.hasOwn(value, name));
    if (missing.length) {
      throw new EdgeInferError(`the column ${listed(missing.slice(0, 8))} is missing`, "input_error", {
        hint: didYouMean(missing[0], Object.keys(value)) || `the columns are ${listed(names.slice(0, 20))}`,
        details: { missing },
      });
    }
    /** @type {Table} */
    const table = { columns: new Map(), rows: 1, isRow: true };
    names.forEach((name, i) => {
      const one = types[i] === "string" ? text(value[name], name, table) : number(value[name], types[i], name, table);
      if (!nullable.includes(name)) refuseMissing(table, 0, name, one);
      table.columns.set(name, typeof one === "number" ? Float64Array.of(one) : [one]);
    });
    return table;
  };
}

/** @param {any} value @param {string} name @param {Table} table @returns {string | null} */
function text(value, name, table) {
  if (value === null || value === undefined || typeof value === "string") return value ?? null;
  if (Number.isNaN(value)) return null;
  throw wrongRow(table, 0, `\`${name}\` is ${shown(value)}, expected a text`, `{"${name}": "a text"}`);
}

/** @param {any} value @param {string} kind @param {string} name @param {Table} table @returns {number} */
function number(value, kind, name, table) {
  if (value === null || value === undefined) return NaN;
  const isWhole = typeof value === "bigint" || Number.isInteger(value);
  let fits = typeof value === "boolean" || (kind !== "bool" && (typeof value === "number" || typeof value === "bigint"));
  if (kind === "int64" && typeof value === "number" && !isWhole && !Number.isNaN(value)) fits = false;
  if (!fits) throw wrongRow(table, 0, `\`${name}\` is ${shown(value)}, expected ${kind}`, `give a number for \`${name}\``);
  if (typeof value === "bigint" && (value > BigInt(EXACT) || value < -BigInt(EXACT))) {
    throw wrongRow(table, 0, `\`${name}\` is ${value}, which float64 does not hold exactly`, "whole numbers of at most 2^53");
  }
  return Number(value);
}
