/** Steps that several pipelines begin with are done once for one raw input, as in a chain: `edge_infer/tasks/shared.py`. */

import { FLOWS } from "./parameters.js";

/** @typedef {import("./item.js").Apply} Apply */
/** @typedef {import("./item.js").Item} Item */
/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./place.js").Place} Place */
/** @typedef {{key: string, args: string[]}} Beginning The steps of a pipeline up to one of them, and what the caller may ask of these. */

/**
 * @param {Step[]} steps The steps before a model.
 * @param {Place} place What they were prepared for.
 * @param {Record<string, any>} manifest The bundle's.
 * @returns {Beginning[]} The beginning that ends with each of them.
 */
export function beginnings(steps, place, manifest) {
  /** @type {any[]} */
  const facts = [];
  const args = new Set();
  return steps.map(({ name, parameters, declared }) => {
    facts.push([name, parameters]);
    const file = manifest.files?.find((/** @type {any} */ one) => one.path === parameters.file);
    if (file) facts.push(file.sha256);
    if (!["image", "sound"].includes(FLOWS[name].gives)) facts.push([place.input, [...place.inputs.values()].map(({ name: input, dtype, shape }) => [input, dtype, shape])]);
    for (const [argument, one] of Object.entries(declared)) if (one.argument) args.add(argument);
    return { key: JSON.stringify(facts), args: [...args].sort() };
  });
}

/** @param {Beginning[][]} pipelines @returns {Set<string>} The keys that more than one of them has. */
export function common(pipelines) {
  const [seen, twice] = [new Set(), new Set()];
  for (const { key } of pipelines.flat()) (seen.has(key) ? twice : seen).add(key);
  return twice;
}

/** What the first steps of pipelines made of raw inputs, in one run of a chain. */
export class Shared {
  /** @param {Set<string>} keys The beginnings that are kept: those that more than one pipeline has. */
  constructor(keys) {
    this.keys = keys;
    /** How many steps were not done again. */
    this.spared = 0;
    /** By raw input and beginning. @type {Map<any, Map<string, {made: any, item: Item}>>} */
    this.kept = new Map();
  }

  /**
   * Do steps on a raw input, but for those that were done on it already.
   *
   * @param {any} value
   * @param {Apply[]} steps
   * @param {Beginning[]} begins
   * @param {Item} item
   * @returns {Promise<{made: any, item: Item}>}
   */
  async through(value, steps, begins, item) {
    const names = begins.map(({ key, args }) => `${key} ${JSON.stringify(args.map((name) => item.args[name] ?? null))}`);
    const known = this.kept.get(value) ?? new Map();
    this.kept.set(value, known);
    let [made, end] = [value, names.length];
    while (end > 0 && !known.has(names[end - 1])) end--;
    if (end > 0) {
      const found = /** @type {{made: any, item: Item}} */ (known.get(names[end - 1]));
      made = found.made;
      item = found.item.copy(item.args);
      this.spared += end;
    }
    for (let i = end; i < steps.length; i++) {
      made = await steps[i](made, item);
      if (this.keys.has(begins[i].key)) known.set(names[i], { made, item: item.copy(item.args) });
    }
    return { made, item };
  }
}
