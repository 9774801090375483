/** Lists of values to the single values in them and back: `edge_infer/chains/spread.py`. */

import { EdgeInferError } from "../errors.js";

/** @typedef {number | any[]} Shape Where each single value is in lists. */

/**
 * @param {Record<string, any>} values What a step reads.
 * @param {Record<string, number>} depths How deep the lists of each are.
 * @param {string} name The step's, for errors.
 * @returns {{single: Record<string, any>[], shape: Shape}}
 * @throws {EdgeInferError} `input_error`: two lists that belong together have different lengths.
 */
export function spread(values, depths, name) {
  /** @type {Record<string, any>[]} */
  const single = [];
  /** @param {Record<string, any>} here @param {Record<string, number>} left @returns {Shape} */
  const walk = (here, left) => {
    const lists = Object.keys(left).filter((one) => left[one] > 0);
    if (!lists.length) return single.push({ ...here }) - 1;
    const lengths = lists.map((one) => here[one].length);
    if (new Set(lengths).size > 1) {
      const said = lists.map((one, i) => `${lengths[i]} of \`${one}\``).join(", ");
      throw new EdgeInferError(`step \`${name}\` reads lists of different lengths: ${said}`, "input_error", { hint: "let it read one list" });
    }
    const inner = Object.fromEntries(Object.entries(left).map(([one, depth]) => [one, depth - (lists.includes(one) ? 1 : 0)]));
    return Array.from({ length: lengths[0] }, (_, i) => walk(Object.fromEntries(Object.entries(here).map(([one, value]) => [one, lists.includes(one) ? value[i] : value])), inner));
  };
  const shape = walk(values, depths);
  return { single, shape };
}

/** @param {Shape} shape @param {any[]} results @returns {any} Results in the shape of what they were made of. */
export function gather(shape, results) {
  return typeof shape === "number" ? results[shape] : shape.map((one) => gather(one, results));
}
