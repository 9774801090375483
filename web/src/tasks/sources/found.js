/** The result of a source of definitions. */

import { VERSION } from "../definition.js";

/** @typedef {import("../../tensors.js").TensorSpec} TensorSpec */
/** @typedef {{inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]}} Facts What a model takes and gives. */
/** @typedef {{task: string, pipeline: Record<string, any>, labels: string[], files: Record<string, Uint8Array<ArrayBuffer>>}} Found A definition as
 *   a manifest has it, the names of the classes, and what its steps read, by path. */
/** @typedef {import("./images.js").StepJson} StepJson */

/**
 * @param {string} task
 * @param {string} source
 * @param {Record<string, StepJson[]>} inputs
 * @param {StepJson[]} outputs
 * @param {string[]} [labels]
 * @param {Found["files"]} [files]
 * @returns {Found}
 */
export function made(task, source, inputs, outputs, labels = [], files = {}) {
  const chains = Object.fromEntries(Object.entries(inputs).map(([name, steps]) => [name, steps.map(given)]));
  return { task, pipeline: { version: VERSION, source, inputs: chains, outputs: outputs.map(given) }, labels, files };
}

/** @param {StepJson} step @returns {StepJson} Without what is left to its default. */
function given(step) {
  return Object.fromEntries(Object.entries(step).filter(([, value]) => value !== undefined && value !== null));
}

/**
 * @param {Facts} facts
 * @param {string[]} names
 * @returns {TensorSpec | undefined} The first output of one of these names, else the only output; undefined where there are several.
 */
export function outputOf({ outputs }, ...names) {
  const named = names.flatMap((name) => outputs.filter((spec) => spec.name === name));
  return named[0] ?? (outputs.length === 1 ? outputs[0] : undefined);
}
