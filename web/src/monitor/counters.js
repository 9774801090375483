/** Counters of a model's data: whole numbers that add up, and hold no row. The same as `edge_infer.monitor.counters`. */

import { EdgeInferError } from "../errors.js";
import { columnsOf } from "./features.js";
import { readReference } from "./reference.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("./reference.js").Feature} Feature */
/** @typedef {import("./reference.js").Reference} Reference */
/** @typedef {{version: number, reference: string, rows: number, counts: Record<string, number[]>}} CountersFile */

const VERSION = 1;
/** Behind the bins of a feature of numbers: the missing, those below and those above the reference's range. */
const EXTRA = 3;

/**
 * Make counters for a session or a pipeline: `session.run` is followed by `counters.observe(inputs, outputs)`; a pipeline
 * does it by `pipeline.observe((inputs, outputs) => counters.observe(inputs, outputs))`.
 *
 * @param {{read: (path: string) => Promise<Uint8Array<ArrayBuffer>>}} model
 * @returns {Promise<Counters>}
 * @throws {EdgeInferError} `unsupported`: the bundle has no reference. `bundle_error`: it is damaged.
 */
export async function countersOf(model) {
  const { name, monitor } = JSON.parse(new TextDecoder().decode(await model.read("manifest.json")));
  if (monitor?.reference === undefined) {
    throw new EdgeInferError(`\`${name}\` has no reference to compare with`, "unsupported", { hint: "edge-infer monitor reference BUNDLE data.parquet" });
  }
  return new Counters(await readReference(await model.read(monitor.reference)));
}

/** What was counted of a model's inputs and outputs. */
export class Counters {
  /** @param {Reference} reference What it is compared with. */
  constructor(reference) {
    this.reference = reference;
    this.rows = 0;
    /** By feature the counts: of numbers 20 bins, the missing, those below and above; of categories each, others, the missing. */
    this.counts = new Map(reference.features.map((one) => [one.name, emptyCounts(one)]));
  }

  /**
   * Count the rows of one run of the model.
   *
   * @param {Record<string, Tensor>} inputs
   * @param {Record<string, Tensor>} outputs
   * @throws {EdgeInferError} `input_error`: a tensor has another shape than the reference's data.
   */
  observe(inputs, outputs) {
    const { features } = this.reference;
    const found = columnsOf(this.reference, inputs, outputs);
    this.rows += found.reduce((most, values) => Math.max(most, values.length), 0);
    features.forEach((feature, i) => add(this.#of(feature.name), counted(feature, found[i])));
  }

  /**
   * Add what others counted, such as another tab; the order does not matter.
   *
   * @param {CountersFile} other
   * @throws {EdgeInferError} `input_error`: they were made for another reference, or are damaged.
   */
  merge({ reference, rows, counts }) {
    const isSame = reference === this.reference.digest && [...this.counts].every(([name, { length }]) => counts?.[name]?.length === length);
    if (!isSame) throw new EdgeInferError("the counters are of another reference: their bins differ", "input_error", { hint: "count again with this bundle" });
    const isGood = [rows, ...[...this.counts.keys()].flatMap((name) => [...counts[name]])].every((one) => Number.isSafeInteger(one) && one >= 0);
    if (!isGood) throw new EdgeInferError("the counters are damaged: they hold something else than whole numbers", "input_error", { hint: "count again with this bundle" });
    this.rows += rows;
    for (const [name, own] of this.counts) add(own, counts[name]);
  }

  /** @returns {CountersFile} What `edge-infer monitor report` reads. */
  toJSON() {
    const counts = Object.fromEntries([...this.counts].map(([name, own]) => [name, [...own]]));
    return { version: VERSION, reference: this.reference.digest, rows: this.rows, counts };
  }

  /** @param {string} name @returns {number[]} */
  #of(name) {
    return /** @type {number[]} */ (this.counts.get(name));
  }
}

/** @param {Feature} feature @returns {number[]} */
function emptyCounts({ edges, values }) {
  return new Array(values.length ? values.length + 2 : edges.length + 1 + EXTRA).fill(0);
}

/** @param {number[]} own @param {number[]} more */
function add(own, more) {
  for (let i = 0; i < own.length; i++) own[i] += more[i];
}

/** @param {Feature} feature @param {number[]} found @returns {number[]} */
function counted(feature, found) {
  const { edges, values, low, high } = feature;
  const counts = emptyCounts(feature);
  const bins = edges.length + 1;
  for (const value of found) {
    if (values.length) {
      const place = values.indexOf(value);
      counts[Number.isNaN(value) ? values.length + 1 : place < 0 ? values.length : place] += 1;
    } else if (Number.isNaN(value)) {
      counts[bins] += 1;
    } else {
      counts[binOf(edges, value)] += 1;
      if (value < low) counts[bins + 1] += 1;
      if (value > high) counts[bins + 2] += 1;
    }
  }
  return counts;
}

/** @param {number[]} edges @param {number} value @returns {number} How many edges are not above the value. */
function binOf(edges, value) {
  let [left, right] = [0, edges.length];
  while (left < right) {
    const middle = (left + right) >> 1;
    if (value < edges[middle]) right = middle;
    else left = middle + 1;
  }
  return left;
}
