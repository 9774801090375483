/** What a bundle and its model offer to the steps of a pipeline. */

import { EdgeInferError } from "../errors.js";
import { didYouMean, listed } from "./words.js";

/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {{inputs: readonly TensorSpec[], outputs: readonly TensorSpec[], run: (inputs: Record<string, Tensor>) => Promise<Record<string, Tensor>>,
 *   dispose: () => Promise<void>}} Opened A small model on an engine. */

export class Place {
  /**
   * @param {(path: string) => Promise<Uint8Array<ArrayBuffer>>} read Gives a file of the bundle, checked.
   * @param {readonly string[]} labels The names of the classes; none where the bundle has none.
   * @param {readonly TensorSpec[]} inputs
   * @param {readonly TensorSpec[]} outputs
   * @param {string} [input] The input that this chain of steps makes; empty for a chain that makes several, and for outputs.
   */
  constructor(read, labels, inputs, outputs, input = "") {
    this.read = read;
    this.labels = labels;
    this.inputs = new Map(inputs.map((spec) => [spec.name, spec]));
    this.outputs = new Map(outputs.map((spec) => [spec.name, spec]));
    this.input = input;
    /** Opens a small model that lies in the bundle; only a session can. @type {((path: string) => Promise<Opened>) | undefined} */
    this.open = undefined;
  }

  /**
   * @param {TensorSpec} spec
   * @returns {Place} The surroundings of steps that make another tensor than the model's input, such as a graph's.
   */
  making(spec) {
    return Object.assign(new Place(this.read, this.labels, [spec], [...this.outputs.values()], spec.name), { open: this.open });
  }

  /**
   * @param {readonly TensorSpec[]} outputs
   * @returns {Place} The surroundings of steps that read other outputs than the model's, such as a graph's.
   */
  giving(outputs) {
    return Object.assign(new Place(this.read, this.labels, [...this.inputs.values()], outputs, this.input), { open: this.open });
  }

  /**
   * @returns {TensorSpec} That of the input which this chain makes.
   * @throws {EdgeInferError} `manifest_error`: the chain makes several inputs, or the model has none of this name.
   */
  spec() {
    const found = this.inputs.get(this.input);
    if (found) return found;
    throw noInput(this.input, [...this.inputs.keys()]);
  }

  /**
   * @param {string | null | undefined} name
   * @param {string} step
   * @returns {string} The output that a step reads: the one it names, else the model's only one.
   * @throws {EdgeInferError} `manifest_error`: the model has none of this name, or several and the step names none.
   */
  output(name, step) {
    const known = [...this.outputs.keys()];
    const given = name ?? (known.length === 1 ? known[0] : undefined);
    if (given !== undefined && this.outputs.has(given)) return given;
    const said = given === undefined ? "names none" : `names \`${given}\``;
    throw new EdgeInferError(`pipeline: \`${step}\` reads one output and ${said}; the model's are ${listed(known)}`, "manifest_error", {
      hint: `{"step": "${step}", "tensor": "${known[0] ?? "NAME"}"}`,
      details: { field: given },
    });
  }

  /**
   * @param {number} index
   * @returns {string} The name of a class; `LABEL_3` where the bundle has no labels, as transformers writes it.
   * @throws {EdgeInferError} `bundle_error`: it has labels, and none for this class.
   */
  label(index) {
    if (!this.labels.length) return `LABEL_${index}`;
    if (this.labels[index] === undefined) throw this.#misfit(`the model found class ${index}`);
    return this.labels[index];
  }

  /**
   * Refuse labels that are not one for each class of the model; none at all are right.
   *
   * @param {number} classes
   * @throws {EdgeInferError} `bundle_error`: there are more of them, or fewer.
   */
  checkLabels(classes) {
    if (this.labels.length && this.labels.length !== classes) throw this.#misfit(`the model gives ${classes} scores`);
  }

  /** @param {string} said */
  #misfit(said) {
    return new EdgeInferError(`${said}, and the bundle has ${this.labels.length} labels`, "bundle_error", {
      hint: "edge-infer convert ... --labels FILE, a name for each class",
    });
  }
}

/** @param {string} name @param {string[]} known @returns {EdgeInferError} The error of steps for an input that the model does not have. */
export function noInput(name, known) {
  return new EdgeInferError(`pipeline: the model has no input \`${name}\`; its inputs are ${listed(known)}`, "manifest_error", {
    hint: didYouMean(name, known) || `"inputs": {"${known[0] ?? "NAME"}": [...]}`,
    details: { field: name },
  });
}

/** @param {TensorSpec} spec @returns {string} The spec as errors show it. */
export function specText({ name, dtype, shape }) {
  return `${name}: ${dtype}[${shape.join(", ")}]`;
}
