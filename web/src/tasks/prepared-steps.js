/** The steps of one pipeline before and after its model, ready to run, and how their tensors become batches. */

import { EdgeInferError } from "../errors.js";
import { batched, rowOf } from "./batching.js";
import { ALL_INPUTS } from "./definition.js";
import { Item } from "./item.js";
import { Place, noInput } from "./place.js";
import { beginnings } from "./shared.js";
import { prepareChain } from "./steps.js";
import { joined } from "./values.js";
import { listed } from "./words.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./definition.js").Definition} Definition */
/** @typedef {import("./item.js").Apply} Apply */
/** @typedef {{step: (inputs: Record<string, unknown>) => Promise<Record<string, Tensor>>, close: () => void}} Stream Runs that carry state. */
/**
 * @typedef {object} Model What the steps stand around: a session, or what behaves like one.
 * @property {readonly TensorSpec[]} inputs
 * @property {readonly TensorSpec[]} outputs
 * @property {readonly string[]} labels
 * @property {(path: string) => Promise<Uint8Array<ArrayBuffer>>} read
 * @property {(path: string) => Promise<import("./place.js").Opened>} [open] Opens a small model that lies in the bundle.
 */
/** @typedef {{item: Item, tensors: Record<string, Tensor>, frames: Record<string, Tensor[]>}} Ready One raw input after the
 *   first steps: its tensors, without the batch's dimension, and the frames of the inputs that are streamed. */

/** The steps of a pipeline, prepared for a model. */
export class PreparedSteps {
  /**
   * @param {Place} place
   * @param {[name: string, steps: Apply[]][]} before
   * @param {Apply[]} after
   * @param {Map<string, number>} pads What fills shorter texts up, by input.
   * @param {boolean} canBatch
   * @param {import("./shared.js").Beginning[]} beginnings What the steps before the model are up to each of them; none where several
   *   inputs have some, or nobody asks.
   */
  constructor(place, before, after, pads, canBatch, beginnings) {
    this.place = place;
    this.first = before;
    this.last = after;
    this.pads = pads;
    this.canBatch = canBatch;
    this.beginnings = beginnings;
  }

  /**
   * @param {Definition} definition
   * @param {Model} model
   * @param {Set<string>} states The inputs that a stream carries from step to step.
   * @param {Record<string, any>} [manifest] The bundle's, where steps are shared with other pipelines.
   * @returns {Promise<PreparedSteps>}
   * @throws {EdgeInferError} `manifest_error`: the definition does not fit the model or the bundle.
   */
  static async prepared(definition, model, states, manifest) {
    const read = (/** @type {string} */ path) => model.read(path);
    const open = model.open && ((/** @type {string} */ path) => /** @type {NonNullable<typeof model.open>} */ (model.open)(path));
    const place = (/** @type {string} */ name) => Object.assign(new Place(read, model.labels, model.inputs, model.outputs, name), { open });
    const known = model.inputs.map(({ name }) => name);
    /** @type {Map<string, number>} */
    const pads = new Map();
    /** @type {Promise<[string, Apply[]]>[]} */
    const before = [];
    for (const [name, steps] of Object.entries(definition.inputs)) {
      if (name !== ALL_INPUTS && !known.includes(name)) {
        throw noInput(name, known);
      }
      const here = place(name === ALL_INPUTS ? "" : name);
      before.push(prepareChain(steps, here).then((made) => [name, made]));
      for (const { name: step, parameters } of steps) {
        if (step === "text.tokenize") pads.set(parameters.tensors.ids, parameters.pad_id);
      }
    }
    const first = Promise.all(before);
    first.catch(() => {}); // told where it is awaited
    const missing = known.filter((name) => !(name in definition.inputs) && !states.has(name));
    if (missing.length && !(ALL_INPUTS in definition.inputs)) {
      throw new EdgeInferError(`pipeline: nothing makes the model's input ${listed(missing)}, expected steps for each`, "manifest_error", {
        hint: `"inputs": {"${missing[0]}": [...]}`,
        details: { field: missing[0] },
      });
    }
    const all = place("");
    const after = prepareChain(definition.outputs, all);
    after.catch(() => {});
    const [only, ...others] = Object.entries(definition.inputs);
    const begins = manifest && !others.length ? beginnings(only[1], place(only[0] === ALL_INPUTS ? "" : only[0]), manifest) : [];
    return new PreparedSteps(all, await first, await after, pads, canBatch(model.inputs, model.outputs), begins);
  }

  /**
   * @param {any[]} values Raw inputs.
   * @param {Record<string, any>} args
   * @returns {any[]} The same, but long texts as windows where a step cuts them.
   */
  windows(values, args) {
    const cut = this.first.flatMap(([, steps]) => steps).map((step) => /** @type {any} */ (step).windows);
    const found = cut.find((one) => one !== undefined);
    return found ? values.flatMap((value) => found(value, args)) : values;
  }

  /**
   * Do the steps before the model on one raw input.
   *
   * @param {any} value
   * @param {Record<string, any>} args
   * @param {import("./shared.js").Shared} [shared] What other pipelines' first steps made of the same input.
   * @param {Item} [item] What is known of the input already.
   * @returns {Promise<Ready>}
   * @throws {EdgeInferError} `input_error`: it is not what the task takes.
   */
  async before(value, args, shared, item = new Item(args)) {
    /** @type {Ready} */
    const ready = { item, tensors: {}, frames: {} };
    for (const [name, steps] of this.first) {
      let made = value;
      if (shared && this.beginnings.length) {
        ({ made, item: ready.item } = await shared.through(value, steps, this.beginnings, ready.item));
      } else {
        for (const step of steps) made = await step(made, ready.item);
      }
      if (name === ALL_INPUTS) Object.assign(ready.tensors, made);
      else if (Array.isArray(made)) ready.frames[name] = made;
      else ready.tensors[name] = made;
    }
    return ready;
  }

  /** @param {Ready[]} batch @returns {Record<string, Tensor>} The model's inputs: shorter texts are filled up to the longest. */
  feeds(batch) {
    const names = Object.keys(batch[0].tensors);
    return Object.fromEntries(names.map((name) => [name, this.#fed(name, batch.map(({ tensors }) => tensors[name]))]));
  }

  /** @param {Ready} ready @returns {Record<string, Tensor>[]} The model's inputs for each step of a stream. */
  framed({ tensors, frames }) {
    const fixed = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, this.#fed(name, [tensor])]));
    const count = Math.min(...Object.values(frames).map((one) => one.length));
    return Array.from({ length: count }, (_, i) => {
      const moving = Object.entries(frames).map(([name, one]) => [name, this.#fed(name, [one[i]])]);
      return { ...fixed, ...Object.fromEntries(moving) };
    });
  }

  /** @param {string} name @param {Tensor[]} tensors */
  #fed(name, tensors) {
    return batched(tensors, /** @type {TensorSpec} */ (this.place.inputs.get(name)), this.pads.get(name) ?? 0);
  }

  /**
   * @param {Record<string, Tensor>} outputs
   * @param {number} index
   * @param {number} count
   * @returns {Record<string, Tensor>} The outputs of one input of a batch, without the batch's dimension.
   */
  ofOne(outputs, index, count) {
    const found = Object.entries(outputs).map(([name, tensor]) => [name, tensor.shape[0] === count ? rowOf(tensor, index) : tensor]);
    return Object.fromEntries(found);
  }

  /** @param {Record<string, Tensor>[]} steps @returns {Record<string, Tensor>} The outputs of all steps of a stream, along a new first dimension. */
  ofStream(steps) {
    /** @type {Record<string, Tensor>} */
    const made = {};
    for (const [name, first] of Object.entries(steps[0])) {
      const parts = steps.map((step) => step[name]);
      if (!parts.every(({ shape }) => shape.join() === first.shape.join())) continue;
      made[name] = { data: joined(parts), dtype: first.dtype, shape: [parts.length, ...first.shape] };
    }
    return made;
  }

  /** Give back what the steps hold in engines. */
  async close() {
    for (const step of [...this.first.flatMap(([, steps]) => steps), ...this.last]) await /** @type {any} */ (step).close?.();
  }

  /** @param {Record<string, Tensor>} outputs @param {Item} item @returns {Promise<any>} The answer, after the last steps. */
  async after(outputs, item) {
    /** @type {any} */
    let value = outputs;
    for (const step of this.last) value = await step(value, item);
    return value;
  }
}

/**
 * @param {readonly TensorSpec[]} inputs
 * @param {readonly TensorSpec[]} outputs
 * @returns {boolean} Whether several inputs can go through the model at once: all lead with a free dimension, alike.
 */
export function canBatch(inputs, outputs) {
  const leads = inputs.map(({ shape }) => shape[0]);
  const isFree = leads.every((lead) => typeof lead === "string") && new Set(leads).size === 1;
  return isFree && outputs.every(({ shape }) => typeof shape[0] === "string");
}
