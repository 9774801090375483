/**
 * A `.tflite` model that LiteRT.js has loaded: its inputs and outputs, and synchronous runs.
 *
 * A compiled model has fixed shapes. Where the file has free dimensions, one is compiled for each set of shapes that
 * is run, and the last few are kept. The calls are those of `ort-session.js` and `ort-call.js`, but for tensors that
 * stay in the engine: LiteRT.js has no memory to keep them in.
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, checkInputs, checkNames, checkShape, copyInto, nbytesOf } from "../tensors.js";
import { LiteRtProgram } from "./litert-heap.js";
import { StagedBuffer } from "./staged-buffer.js";
import { TfliteFile } from "./tflite-file.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../tensors.js").NumberArray} NumberArray */
/** @typedef {import("./litert-heap.js").LiteRtHeap} LiteRtHeap */
/** @typedef {import("./litert-heap.js").CppBuffer} CppBuffer */
/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */
/** @typedef {{program: LiteRtProgram, call: LiteRtCall | undefined, users: number, hasRun: boolean}} Entry */

// Models compiled for shapes that a session keeps: each has its own copy of the weights.
const MAX_PROGRAMS = 2;

/** A loaded model. Close it to give back its memory. */
export class LiteRtSession {
  /**
   * @param {LiteRtHeap} heap
   * @param {Uint8Array | StoredFile} model The bytes of a `.tflite` file.
   * @param {number} threads
   * @param {boolean} [keepsState] Whether hidden state stays from run to run; each run starts it over unless given.
   * @throws {EdgeInferError} `unsupported_model`: the engine cannot load it.
   */
  constructor(heap, model, threads, keepsState = false) {
    this.heap = heap;
    this.threads = threads;
    this.keepsState = keepsState;
    const given = model instanceof Uint8Array ? new TfliteFile(model) : undefined;
    const first = new LiteRtProgram(heap, model, threads);
    try {
      this.file = given ?? new TfliteFile(first.bytes);
      /** Whether the model keeps values of its own that no output shows. */
      this.hasHiddenState = this.file.hasState;
      const describe = (/** @type {"input" | "output"} */ side, /** @type {string[]} */ names) =>
        names.map((name, i) => specOf(heap, first, side, name, i));
      /** @type {TensorSpec[]} */
      this.inputs = describe("input", first.inputNames);
      /** @type {TensorSpec[]} */
      this.outputs = describe("output", first.outputNames);
    } catch (error) {
      first.close();
      throw error;
    }
    /** @type {Map<string, Entry>} */
    this.programs = new Map();
    this.isClosed = false;
    if (this.isFixed) {
      this.programs.set(this.keyOf(this.inputs.map((spec) => /** @type {number[]} */ (spec.shape))), entryOf(first));
      // The file is not needed to compile for other shapes: there are none. Another stream needs it.
      this.file.bytes = this.hasHiddenState ? first.bytes.slice() : new Uint8Array();
    } else {
      this.file = new TfliteFile(first.bytes.slice());
      first.close();
    }
  }

  /** @returns {boolean} Whether no input has a free dimension. */
  get isFixed() {
    return this.inputs.every((spec) => spec.shape.every((dim) => typeof dim === "number"));
  }

  /** @returns {string} The specs as JSON: one crossing for a caller in another language. */
  describe() {
    const state = this.hasHiddenState ? { hasHiddenState: true } : {};
    return JSON.stringify({ inputs: this.inputs, outputs: this.outputs, ...state });
  }

  /** @returns {LiteRtSession} A second one whose hidden state starts anew and stays from run to run. */
  keepingState() {
    return new LiteRtSession(this.heap, this.file.bytes, this.threads, true);
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} feeds A value for each input: a typed array, `{data, dtype, shape}`, or nested
   *   arrays.
   * @param {{outputs?: string[], into?: Record<string, NumberArray>}} [options] The outputs to compute, all unless
   *   given; and arrays to write outputs into.
   * @returns {Record<string, Tensor>}
   * @throws {EdgeInferError} `input_error` where a value does not fit, `execution_error` where the engine fails.
   */
  run(feeds, { outputs = this.outputs.map((spec) => spec.name), into = {} } = {}) {
    checkNames("Output", [...outputs, ...Object.keys(into)], this.outputs);
    const values = /** @type {import("../tensors.js").Checked[]} */ (checkInputs(this.inputs, feeds));
    const call = this.callFor(values.map(({ shape }) => shape));
    this.inputs.forEach((_, i) => call.write(i, /** @type {Uint8Array} */ (values[i].bytes)));
    call.run();
    return Object.fromEntries(outputs.map((name) => [name, call.give(name, into[name])]));
  }

  /**
   * Make a call with fixed shapes.
   *
   * @param {Record<string, number[]>} shapes The shape of each input.
   * @param {string[]} [outputs] The outputs to read; all unless given.
   * @returns {LiteRtCall} To be closed by the caller.
   */
  bind(shapes, outputs = this.outputs.map((spec) => spec.name)) {
    checkNames("Output", outputs, this.outputs);
    const inOrder = this.inputs.map((spec) => {
      const shape = shapes[spec.name];
      if (!shape) throw new EdgeInferError(`Input \`${spec.name}\` has no shape`, "input_error", { details: { input: spec.name } });
      checkShape(spec, shape);
      return shape;
    });
    const entry = this.programFor(inOrder);
    return new LiteRtCall(this, entry, inOrder, outputs);
  }

  /** @param {number[][]} shapes @returns {LiteRtCall} Made now or kept from an earlier run. It belongs to the session. */
  callFor(shapes) {
    const entry = this.programFor(shapes);
    entry.call ??= new LiteRtCall(this, entry, shapes, this.outputs.map((spec) => spec.name));
    return entry.call;
  }

  /** @param {number[][]} shapes */
  programFor(shapes) {
    if (this.isClosed) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    const key = this.keyOf(shapes);
    const known = this.programs.get(key);
    if (this.keepsState && !known && this.programs.size > 0) {
      throw new EdgeInferError(`The inputs of a stream have the shapes ${[...this.programs.keys()][0]}, now ${key}`, "input_error", {
        hint: "open another stream: the model keeps its state for one set of shapes",
      });
    }
    // The oldest first, so that a new one finds its threads and its memory.
    for (const [old, { program, call, users }] of this.programs) {
      if (known || this.programs.size < MAX_PROGRAMS) break;
      if (users > (call ? 1 : 0)) continue;
      this.programs.delete(old);
      call?.close();
      program.close();
    }
    const entry = known ?? entryOf(this.compileFor(shapes));
    this.programs.delete(key);
    this.programs.set(key, entry);
    return entry;
  }

  /** @param {number[][]} shapes */
  keyOf(shapes) {
    return JSON.stringify(shapes);
  }

  /** @param {number[][]} shapes */
  compileFor(shapes) {
    const named = Object.fromEntries(this.inputs.map(({ name }, i) => [name, shapes[i]]));
    const empty = this.inputs.find((_, i) => shapes[i].includes(0));
    if (empty) {
      throw new EdgeInferError(
        `Input \`${empty.name}\` has shape (${named[empty.name]}), which has no element: LiteRT cannot run on it`,
        "input_error",
        { hint: "skip the call, or use an onnx variant", details: { input: empty.name } },
      );
    }
    return new LiteRtProgram(this.heap, this.file.withShapes(named), this.threads);
  }

  /** Give back the model's memory. A second call does nothing. */
  close() {
    this.isClosed = true;
    for (const { program, call } of this.programs.values()) {
      call?.close();
      program.close();
    }
    this.programs.clear();
  }
}

/** @param {LiteRtProgram} program @returns {Entry} */
function entryOf(program) {
  return { program, call: undefined, users: 0, hasRun: false };
}

/**
 * @param {LiteRtHeap} heap
 * @param {Pick<LiteRtProgram, "model">} program
 * @param {"input" | "output"} side
 * @param {string} name
 * @param {number} index
 * @returns {TensorSpec}
 */
export function specOf(heap, { model }, side, name, index) {
  const type = side === "input" ? model.getInputTensorType(0, index) : model.getOutputTensorType(0, index);
  const { dtype, shape } = heap.describe(type, name);
  // A free dimension has no name of its own in TFLite; these are those of `edge_infer.backends.litert.model`.
  return { name, dtype, shape: shape.map((dim, axis) => (dim >= 0 ? dim : `${name}_${axis}`)) };
}

/** @typedef {{dtype: DType, shape: number[], bytes: Uint8Array<ArrayBuffer> | undefined}} Result */

/** A run with fixed shapes; made by `LiteRtSession.bind`. What `view` gives is overwritten by its next run. */
export class LiteRtCall {
  /**
   * @param {LiteRtSession} session
   * @param {Entry} entry
   * @param {number[][]} shapes In the order of the inputs.
   * @param {string[]} outputs
   */
  constructor(session, entry, shapes, outputs) {
    this.session = session;
    this.heap = session.heap;
    this.entry = entry;
    this.shapes = shapes;
    this.outputNames = outputs;
    /** Where the results asked for are among the model's outputs. */
    this.places = outputs.map((name) => session.outputs.findIndex((spec) => spec.name === name));
    this.buffers = entry.program.createInputs();
    entry.users++;
    /** What was handed out to be written into: copied to the engine by each run. @type {Map<number, Uint8Array<ArrayBuffer>>} */
    this.slots = new Map();
    /** @type {Result[]} */
    this.results = [];
    /** @type {StagedBuffer | undefined} */
    this.staged = undefined;
    this.isClosed = false;
  }

  /**
   * @param {number} index Of the inputs.
   * @param {Uint8Array} bytes
   */
  write(index, bytes) {
    this.heap.guard(() => this.heap.write(this.buffers[index], bytes), "to write an input", "execution_error");
  }

  /**
   * @param {string} name
   * @returns {Uint8Array<ArrayBuffer>} The bytes of an input, to be written into before a run.
   */
  slot(name) {
    const index = this.session.inputs.findIndex((spec) => spec.name === name);
    if (index < 0 || this.isClosed) {
      throw new EdgeInferError(`Input \`${name}\` has no buffer in this call`, "input_error", { details: { input: name } });
    }
    const found = this.slots.get(index) ?? new Uint8Array(nbytesOf(this.session.inputs[index].dtype, this.shapes[index]));
    this.slots.set(index, found);
    return found;
  }

  /** @returns {Record<string, NumberArray>} The input buffers as typed arrays, by name. */
  get inputs() {
    return Object.fromEntries(this.session.inputs.map(({ name, dtype }) => [name, arrayOver(dtype, this.slot(name))]));
  }

  /**
   * Run on what was written.
   *
   * @returns {undefined} Every output lies in the same buffer after every run.
   * @throws {EdgeInferError} `execution_error` where the engine fails.
   */
  run() {
    const { heap } = this;
    if (this.isClosed || this.session.isClosed) {
      throw new EdgeInferError("The call is closed", "input_error", { hint: "prepare it again" });
    }
    for (const [index, bytes] of this.slots) this.write(index, bytes);
    if (this.session.hasHiddenState && !this.session.keepsState && this.entry.hasRun) this.entry.program.startOver();
    this.entry.hasRun = true;
    const given = this.entry.program.run(this.buffers);
    try {
      heap.guard(() => this.places.forEach((place, i) => this.keep(i, given[place])), "to read an output", "execution_error");
    } finally {
      if (!heap.aborted) for (const buffer of given) buffer.delete();
    }
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @param {CppBuffer} buffer
   */
  keep(index, buffer) {
    this.results[index] ??= { ...this.heap.describe(buffer.tensorType(), this.outputNames[index]), bytes: undefined };
    const result = this.results[index];
    const bytes = nbytesOf(result.dtype, result.shape);
    if (buffer.packedSize() !== bytes) {
      throw new EdgeInferError(
        `Output \`${this.outputNames[index]}\` has ${buffer.packedSize()} bytes, its shape (${result.shape}) takes ${bytes}`,
        "execution_error",
        { hint: "the shape of an output may not depend on the data in LiteRT.js: use an onnx variant" },
      );
    }
    result.bytes ??= new Uint8Array(bytes);
    this.heap.read(buffer, result.bytes);
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {{dtype: DType, shape: number[]}}
   */
  description(index) {
    const found = this.results[index];
    if (!found) {
      throw new EdgeInferError(`Output \`${this.outputNames[index]}\` is not there: run the call first`, "input_error");
    }
    return found;
  }

  /** @returns {boolean} Whether the output lies in the same buffer after every run: here each does. */
  isFixed() {
    return true;
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {Uint8Array<ArrayBuffer>} The output's bytes: overwritten by the next run.
   */
  view(index) {
    this.description(index);
    return (this.results[index].bytes ??= new Uint8Array());
  }

  /** @returns {Record<string, Tensor>} The outputs: views, overwritten by the next run. */
  get outputs() {
    return Object.fromEntries(
      this.outputNames.map((name, i) => {
        const { dtype, shape } = this.description(i);
        return [name, { data: arrayOver(dtype, this.view(i)), dtype, shape }];
      }),
    );
  }

  /**
   * Give an output away: the next run writes into another buffer.
   *
   * @param {string} name
   * @param {NumberArray | undefined} target Where to copy it instead.
   * @returns {Tensor}
   */
  give(name, target) {
    const index = this.outputNames.indexOf(name);
    const { dtype, shape } = this.description(index);
    const source = this.view(index);
    if (!target) {
      this.results[index].bytes = undefined;
      return { data: arrayOver(dtype, source), dtype, shape: [...shape] };
    }
    return copyInto(name, { dtype, shape }, source, target);
  }

  /**
   * Share a buffer with Python, so that a run is one crossing of the languages instead of one for each tensor. It holds
   * the bytes of all inputs and then of all outputs, in their order and without gaps.
   *
   * @param {import("./staged-buffer.js").Shareable} buffer
   */
  stage(buffer) {
    this.staged?.close();
    const inputs = this.session.inputs.map((spec) => this.slot(spec.name));
    this.staged = new StagedBuffer(buffer, inputs, this.outputNames.map((_, i) => this.view(i)));
    this.staged.fill();
  }

  /** Run on the inputs in the shared buffer, and put the outputs there. */
  cross() {
    StagedBuffer.cross(this);
  }

  /** Give the buffers back. A second call does nothing. */
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.staged?.close();
    this.entry.users--;
    if (!this.heap.aborted) for (const buffer of this.buffers.splice(0)) buffer.delete();
  }
}
