/** From raw data to an answer: what `pipeline` of `index.js` makes of a session. The same as `edge_infer.pipeline`. */

import { EdgeInferError } from "../errors.js";
import { sizeOf } from "../tensors.js";
import { PreparedSteps } from "./prepared-steps.js";
import { checkValue } from "./check-parameters.js";
import { argumentsOf, chainsOf, definitionOf } from "./definition.js";
import { getTask } from "./registry.js";
import { packed } from "./values.js";
import { didYouMean, listed } from "./words.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("./prepared-steps.js").Model} Model */
/** @typedef {import("./prepared-steps.js").Ready} Ready */
/** @typedef {import("./shared.js").Shared} Shared */
/** @typedef {Record<string, any>} Arguments */
/** @typedef {import("./prepared-steps.js").Stream} Stream */
/** @typedef {import("../bundle/manifest.js").Variant} Variant */
/** @typedef {Model & {run: (inputs: Record<string, unknown>) => Promise<Record<string, Tensor>>, report: () => {variant: string},
 *   stream?: () => Stream, dispose: () => Promise<void>}} Runnable A session. */
/** @typedef {(inputs: Record<string, Tensor>, outputs: Record<string, Tensor>) => void} Observer Such as counters of drift. */
/** @typedef {((inputs: any, args?: Record<string, any>) => Promise<any>) & Parts & AsyncDisposable} Answering A function that answers. */
/**
 * @typedef {object} Parts What a pipeline has besides its call.
 * @property {string} task What it is for, such as `object-detection`.
 * @property {readonly string[]} labels The names of the classes; empty where there are none.
 * @property {(observer: Observer) => void} observe Shows the inputs and outputs of each later run of the model, streams apart.
 * @property {(path: string) => Promise<Uint8Array<ArrayBuffer>>} read Gives a file of the bundle.
 * @property {() => Promise<void>} selfTest Compares steps and answers with the bundle's vectors; nothing where it has none. Throws
 *   `execution_error` where they differ.
 * @property {() => Promise<void>} dispose Gives the engine's memory back.
 * @property {(values: any[], args: Record<string, any>, shared: Shared) => Promise<any[]>} answer Answers raw inputs that are there at the
 *   same time, as a chain has them.
 * @property {(source?: any, args?: Record<string, any>) => AsyncGenerator<any>} listen Answers live sound: the microphone without a source, a
 *   `MediaStream`, or blocks of samples at the model's rate.
 * @property {(source?: any, args?: Record<string, any>) => AsyncGenerator<any>} watch Answers the newest picture each time: of the camera
 *   without a source, of a `MediaStream` or a `<video>`.
 * @property {import("./shared.js").Beginning[]} beginnings What it begins with, for chains.
 */

/** The most inputs of a batch that are no texts. */
const ALIKE = 16;
/** How many raw inputs are read ahead, so that texts of one length can run together. */
const AHEAD = 256;
/** The most tokens of a batch, those that only fill it up included: more of them are slower on a processor, not faster. */
const TOKENS = 512;
/** The most rows of a table that run together. */
const ROWS = 16384;

/**
 * Make a pipeline of a session, as its bundle's manifest says.
 *
 * @param {Runnable} session
 * @param {string} [task] The task that the bundle must have; whatever it is unless given.
 * @returns {Promise<Answering>}
 * @throws {EdgeInferError} `unsupported`: the bundle does not say what stands before and after the model. `manifest_error`: what
 *   it says is wrong, or does not fit the model. `input_error`: it is for another task.
 */
export async function pipelineOf(session, task) {
  const manifest = JSON.parse(new TextDecoder().decode(await session.read("manifest.json")));
  const definition = definitionOf(manifest);
  if (task !== undefined && task !== definition.task) {
    throw new EdgeInferError(`\`${manifest.name}\` is for ${definition.task}, not for ${task}`, "input_error", {
      hint: `pipeline("${definition.task}", ...)`,
      details: { expected: definition.task, got: task },
    });
  }
  /** @type {Variant[]} */
  const variants = manifest.variants;
  const state = variants.find(({ id }) => id === session.report().variant)?.state ?? [];
  const states = new Set(variants.flatMap((one) => one.state ?? []).flatMap((one) => (one.kind === "pair" ? [/** @type {string} */ (one.in)] : [])));
  const work = new Work(session, definition, await PreparedSteps.prepared(definition, session, states, manifest), state);
  const call = /** @type {Answering} */ (/** @type {unknown} */ ((/** @type {any} */ inputs, /** @type {Arguments} */ args) => work.call(inputs, args)));
  const dispose = async () => {
    await work.steps.close();
    await session.dispose();
  };
  const observe = (/** @type {Observer} */ observer) => void work.observers.push(observer);
  const read = (/** @type {string} */ path) => session.read(path);
  const answer = (/** @type {any[]} */ values, /** @type {Arguments} */ args, /** @type {Shared} */ shared) => {
    work.check(args);
    return work.answers(values, args, shared);
  };
  const listen = async function* (/** @type {any} */ source, /** @type {Arguments} */ args = {}) {
    work.check(args);
    yield* (await import("./live/listening.js")).listen(work, source, args);
  };
  const watch = async function* (/** @type {any} */ source, /** @type {Arguments} */ args = {}) {
    if (work.task.takes !== "image") throw new EdgeInferError(`${definition.task} takes no image`, "unsupported", { hint: "await pipeline(inputs)" });
    work.check(args);
    yield* (await import("./live/camera.js")).watch((picture) => work.call(picture, args), source);
  };
  const selfTest = async () => {
    if (definition.vectors === null) return;
    const { prove } = await import("./vectors.js");
    await prove(work.proven(manifest.name, session.report().variant), await session.read(definition.vectors));
  };
  const { beginnings } = work.steps;
  const parts = { task: definition.task, labels: session.labels, dispose, observe, read, answer, listen, watch, selfTest, beginnings };
  return Object.assign(call, parts, { [Symbol.asyncDispose ?? "dispose"]: dispose });
}

/** @param {string} task @throws {EdgeInferError} `input_error`: there is none of this name. */
export function checkTask(task) {
  getTask(task);
}

/** What one pipeline does. */
class Work {
  /**
   * @param {Runnable} session
   * @param {import("./definition.js").Definition} definition
   * @param {PreparedSteps} steps
   * @param {NonNullable<Variant["state"]>} state What a stream carries from step to step.
   */
  constructor(session, definition, steps, state) {
    this.session = session;
    this.definition = definition;
    this.steps = steps;
    /** @type {Observer[]} */
    this.observers = [];
    /** By input of the state the output that is fed back. */
    this.pairs = new Map(state.flatMap((one) => (one.kind === "pair" ? [[one.in, /** @type {string} */ (one.out)]] : [])));
    this.hasHiddenState = state.some(({ kind }) => kind === "hidden");
    this.task = getTask(definition.task);
    this.allowed = new Set([...argumentsOf(definition), ...(this.task.args ?? [])]);
  }

  /**
   * @param {any} inputs
   * @param {Arguments} [args]
   */
  async call(inputs, args = {}) {
    const asked = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined));
    this.check(asked);
    if (!isList(inputs)) return (await this.answers([inputs], asked))[0];
    const ahead = this.steps.canBatch && ["text", "table"].includes(this.task.takes) ? AHEAD : 1;
    const found = [];
    for (let at = 0; at < inputs.length; at += ahead) found.push(...(await this.answers(inputs.slice(at, at + ahead), asked)));
    return found;
  }

  /** @param {Arguments} args */
  check(args) {
    for (const [name, value] of Object.entries(args)) {
      if (!this.allowed.has(name)) {
        const known = [...this.allowed].sort();
        throw new EdgeInferError(`${this.definition.task} takes no argument \`${name}\``, "input_error", {
          hint: didYouMean(name, known) || `it takes ${listed(known)}`,
          details: { argument: name },
        });
      }
      for (const step of chainsOf(this.definition).flat()) {
        if (value !== null && step.declared[name]?.argument) checkValue(step.declared[name], name, value, "", "input_error");
      }
    }
  }

  /**
   * @param {any[]} values
   * @param {Arguments} args
   * @param {Shared} [shared] What other pipelines' first steps made of the same inputs.
   * @returns {Promise<any[]>}
   */
  async answers(values, args, shared) {
    const { combine } = this.task;
    const groups = values.map((value) => this.runs(value, args));
    /** @type {Ready[]} */
    const ready = [];
    for (const one of groups.flat()) ready.push(await this.steps.before(one, args, shared));
    const answers = new Array(ready.length);
    for (const batch of this.batches(ready, shared !== undefined)) {
      const [first] = batch;
      if (Object.keys(ready[first].frames).length) {
        const steps = await this.stream(this.steps.framed(ready[first]));
        answers[first] = await this.steps.after(this.steps.ofStream(steps), ready[first].item);
        continue;
      }
      const feeds = this.steps.feeds(batch.map((i) => ready[i]));
      const outputs = await this.session.run(feeds);
      for (const observer of this.observers) observer(feeds, outputs);
      for (const [row, i] of batch.entries()) {
        answers[i] = await this.steps.after(this.steps.ofOne(outputs, row, batch.length), ready[i].item);
      }
    }
    if (!combine) return answers;
    let at = 0;
    return values.map((value, i) => combine(answers.slice(at, (at += groups[i].length)), value, args, this.steps.place));
  }

  /**
   * @param {any} value A raw input of the task.
   * @param {Arguments} args
   * @returns {any[]} A raw input for each run of the model that it takes; long texts as windows where the task has them.
   */
  runs(value, args) {
    const found = this.task.expand ? this.task.expand(value, args) : [value];
    return this.task.args?.includes("doc_stride") ? this.steps.windows(found, args) : found;
  }

  /** @param {string} name The bundle's. @param {string} variant @returns {import("./vectors.js").Proven} What the vectors prove. */
  proven(name, variant) {
    const { definition, steps, session } = this;
    return { definition, steps, name, variant, labels: session.labels, runs: this.runs.bind(this), call: this.call.bind(this) };
  }

  /**
   * Run a streamed model frame by frame: what it gives as its state is its input for the next frame.
   *
   * @param {Record<string, Tensor>[]} frames
   * @returns {Promise<Record<string, Tensor>[]>} The outputs of each step, without the state.
   */
  async stream(frames) {
    return runSteps(this.openStream(), frames);
  }

  /** @returns {Stream} Runs that carry the model's state. @throws {EdgeInferError} Nothing says what its state is. */
  openStream() {
    if (this.hasHiddenState) {
      if (this.session.stream) return this.session.stream();
      throw new EdgeInferError("the model keeps its state in itself, which this session cannot carry from frame to frame", "unsupported", {
        hint: "take a session of `load`, or a variant whose state is in its inputs and outputs",
      });
    }
    if (this.pairs.size === 0) {
      throw new EdgeInferError("a stream needs to know which output becomes which input", "input_error", {
        hint: '"state": [{"kind": "pair", "out": "h_out", "in": "h_in"}] in the variant of manifest.json',
      });
    }
    const carried = this.session.inputs.filter(({ name }) => this.pairs.has(name));
    /** @type {Record<string, Tensor>} */
    let state = Object.fromEntries(
      carried.map(({ name, dtype, shape }) => {
        const dims = shape.map((dim) => (typeof dim === "number" ? dim : 1));
        return [name, packed(new Array(sizeOf(dims)).fill(0), dtype, dims)];
      }),
    );
    const fed = new Set(this.pairs.values());
    const step = async (/** @type {Record<string, unknown>} */ frame) => {
      const outputs = await this.session.run({ ...frame, ...state });
      state = Object.fromEntries(carried.map(({ name }) => [name, outputs[/** @type {string} */ (this.pairs.get(name))]]));
      return Object.fromEntries(Object.entries(outputs).filter(([name]) => !fed.has(name)));
    };
    return { step, close: () => {} };
  }

  /**
   * Group what can run together: texts of about one length, up to so many tokens in all.
   *
   * @param {Ready[]} ready
   * @param {boolean} isAlike Whether inputs that are no texts run together too where their tensors have the same shapes.
   * @returns {number[][]}
   */
  batches(ready, isAlike) {
    const each = ready.map((_, i) => i);
    if (this.steps.canBatch && this.task.takes === "table") return chunks(each, ROWS);
    if (this.steps.canBatch && this.task.takes !== "text" && isAlike) return alike(ready);
    if (!this.steps.canBatch || this.task.takes !== "text") return each.map((i) => [i]);
    const sizes = ready.map(({ tensors }) => Math.max(0, ...Object.values(tensors).map(({ shape }) => sizeOf(shape))));
    /** @type {number[][]} */
    const found = [];
    /** @type {number[]} */
    let batch = [];
    for (const i of each.sort((one, other) => sizes[one] - sizes[other])) {
      if (batch.length && (batch.length + 1) * sizes[i] > TOKENS) {
        found.push(batch);
        batch = [];
      }
      batch.push(i);
    }
    return batch.length ? [...found, batch] : found;
  }
}

/** @param {Ready[]} ready @returns {number[][]} Inputs whose tensors have the same shapes, in the order of their first ones. */
function alike(ready) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  ready.forEach(({ tensors, frames }, i) => {
    const key = Object.keys(frames).length ? `frames ${i}` : JSON.stringify(Object.entries(tensors).map(([name, { shape }]) => [name, shape]));
    groups.set(key, [...(groups.get(key) ?? []), i]);
  });
  return [...groups.values()].flatMap((group) => Array.from({ length: Math.ceil(group.length / ALIKE) }, (_, at) => group.slice(at * ALIKE, (at + 1) * ALIKE)));
}

/** @param {any} inputs @returns {boolean} Whether these are several raw inputs; a list of numbers is the samples of one sound. */
function isList(inputs) {
  return Array.isArray(inputs) && typeof inputs[0] !== "number";
}

/** @param {number[]} all @param {number} most @returns {number[][]} Parts of at most so many. */
function chunks(all, most) {
  return Array.from({ length: Math.ceil(all.length / most) }, (_, i) => all.slice(i * most, (i + 1) * most));
}

/**
 * @param {Stream} stream It is closed at the end.
 * @param {Record<string, Tensor>[]} frames
 * @returns {Promise<Record<string, Tensor>[]>} The outputs of each step.
 */
async function runSteps(stream, frames) {
  try {
    const found = [];
    for (const frame of frames) found.push(await stream.step(frame));
    return found;
  } finally {
    stream.close();
  }
}
