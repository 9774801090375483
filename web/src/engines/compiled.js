/**
 * Run compiled models: WebAssembly modules of `edge-infer compile`, each with its kernels, its weights and its calls.
 *
 * No engine is fetched. A model imports nothing, so it cannot reach the page. The places of its inputs and outputs are
 * checked against its memory when it is loaded. The methods are those of `litert-session.js`.
 */

import { EdgeInferError } from "../errors.js";
import { DTYPES, arrayOver, checkInputs, checkNames, checkShape, copyInto, nbytesOf } from "../tensors.js";
import { VERSION } from "../version.js";
import { StagedBuffer } from "./staged-buffer.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../tensors.js").NumberArray} NumberArray */
/** @typedef {{name: string, dtype: DType, shape: number[], offset: number}} ProgramTensor */
/**
 * @typedef {object} Program
 * @property {number} version
 * @property {number} base
 * @property {ProgramTensor[]} inputs
 * @property {ProgramTensor[]} outputs
 * @property {boolean} [row] Whether a run computes one sample of a free batch.
 * @property {[offset: number, nbytes: number, initial: number][]} [state] Variables: where each lies in the image, its size, and where its first
 *   value lies, -1 for zeros.
 */

/** The name of the custom section that describes a model, and the version of its fields. */
const [SECTION, SECTION_VERSION] = ["edge_infer.program", 1];
/** The custom section with a module that has the int8 convolution once more, and works in the memory of the model. */
const DOT_SECTION = "edge_infer.dot";
const NOT_COMPILED = "write it with `edge-infer compile MODEL.tflite -o FOLDER`";

/** Makes sessions of compiled models. It needs no start. */
export class CompiledEngine {
  name = "compiled-web";
  version = VERSION;
  /** A compiled model has one thread. */
  threads = 1;
  threadsWhy = "a compiled model has one thread";

  /**
   * Load a model.
   *
   * @param {Uint8Array} model The bytes of a `model.wasm`.
   * @returns {CompiledSession}
   * @throws {EdgeInferError} `unsupported_model`: it is not a compiled model, is damaged, or this browser cannot compile it.
   */
  createSession(model) {
    return new CompiledSession(model);
  }
}

/** A loaded model. Only its batch may be free, and a run ends before the next one starts: all calls share its memory. */
export class CompiledSession {
  /**
   * @param {Uint8Array | WebAssembly.Module} model
   * @param {boolean} [keepsState] Whether variables keep their values from run to run; each run starts them over unless given.
   */
  constructor(model, keepsState = false) {
    const { module, program, run, memory } = instantiate(model);
    this.module = module;
    this.keepsState = keepsState;
    /** The memory of each variable, and its first value. @type {{now: Uint8Array, first: Uint8Array}[]} */
    this.variables = (program.state ?? []).map((state) => variableOf(state, program.base, memory));
    /** Whether the model keeps values of its own that no output shows. */
    this.hasHiddenState = this.variables.length > 0;
    this.startOver();
    const [given, made] = [program.inputs, program.outputs].map((side) => side.map((tensor) => partOf(tensor, program.base, memory)));
    /** Whether a batch of any size is run sample by sample. */
    this.isRow = program.row === true;
    const specOf = (/** @type {ProgramTensor} */ { name, dtype, shape }) => ({ name, dtype, shape: this.isRow ? ["batch", ...shape.slice(1)] : shape });
    /** @type {TensorSpec[]} */
    this.inputs = program.inputs.map(specOf);
    /** @type {TensorSpec[]} */
    this.outputs = program.outputs.map(specOf);
    /** The memory of each input and output. @type {{inputs: Uint8Array<ArrayBuffer>[], outputs: Uint8Array<ArrayBuffer>[]} | undefined} */
    this.memory = { inputs: given, outputs: made };
    this.start = run;
    /** @type {CompiledCall | undefined} */
    this.call = undefined;
  }

  /** @returns {string} The specs as JSON: one crossing for a caller in another language. */
  describe() {
    const state = this.hasHiddenState ? { hasHiddenState: true } : {};
    return JSON.stringify({ inputs: this.inputs, outputs: this.outputs, ...state });
  }

  /** @returns {CompiledSession} A second one, in memory of its own, whose variables start anew and stay from run to run. */
  keepingState() {
    return new CompiledSession(this.module, true);
  }

  /** Give the variables their first values. */
  startOver() {
    for (const { now, first } of this.variables) now.set(first);
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} feeds A value for each input: a typed array, `{data, dtype, shape}`, or nested
   *   arrays.
   * @param {{outputs?: string[], into?: Record<string, NumberArray>}} [options] The outputs to read, all unless
   *   given; and arrays to write outputs into.
   * @returns {Record<string, Tensor>}
   * @throws {EdgeInferError} `input_error` where a value does not fit, `execution_error` where the model fails.
   */
  run(feeds, { outputs = this.outputs.map((spec) => spec.name), into = {} } = {}) {
    checkNames("Output", [...outputs, ...Object.keys(into)], this.outputs);
    const values = /** @type {import("../tensors.js").Checked[]} */ (checkInputs(this.inputs, feeds));
    const rows = this.rowsOf(values.map(({ shape }) => shape));
    if (this.call?.rows !== rows) {
      this.call?.close();
      this.call = new CompiledCall(this, this.outputs.map((spec) => spec.name), rows);
    }
    this.inputs.forEach(({ name }, i) => this.call?.slot(name).set(/** @type {Uint8Array} */ (values[i].bytes)));
    this.call.run();
    return Object.fromEntries(outputs.map((name) => [name, /** @type {CompiledCall} */ (this.call).give(name, into[name])]));
  }

  /**
   * Make a call with buffers of its own.
   *
   * @param {Record<string, number[]>} [shapes] The shape of each input; a free batch is 1 unless given.
   * @param {string[]} [outputs] The outputs to read; all unless given.
   * @returns {CompiledCall} To be closed by the caller.
   */
  bind(shapes = {}, outputs = this.outputs.map((spec) => spec.name)) {
    checkNames("Output", outputs, this.outputs);
    const given = this.inputs.map((spec) => shapes[spec.name] ?? withBatch(spec.shape, 1));
    this.inputs.forEach((spec, i) => checkShape(spec, given[i]));
    return new CompiledCall(this, outputs, this.rowsOf(given));
  }

  /**
   * @param {number[][]} shapes Of the inputs, in their order.
   * @returns {number} How many runs they take.
   */
  rowsOf(shapes) {
    if (!this.isRow || shapes.length === 0) return 1;
    const [[rows]] = shapes;
    const wrong = shapes.findIndex(([count]) => count !== rows);
    if (wrong >= 0) {
      const { name } = this.inputs[wrong];
      throw new EdgeInferError(`Input \`${name}\` has ${shapes[wrong][0]} samples, another one ${rows}: all inputs share their batch`, "input_error", {
        details: { input: name },
      });
    }
    return rows;
  }

  /** @returns {number} The bytes of its memory, which is its own; 0 once it is closed. */
  get memoryBytes() {
    return this.memory?.inputs[0]?.buffer.byteLength ?? 0;
  }

  /** Give back the model's memory. A second call does nothing. */
  close() {
    this.call?.close();
    this.memory = undefined;
  }
}

/** A run with buffers of its own; made by `CompiledSession.bind`. What `view` gives is overwritten by its next run. */
export class CompiledCall {
  /**
   * @param {CompiledSession} session
   * @param {string[]} outputs
   * @param {number} rows How many samples its buffers hold.
   */
  constructor(session, outputs, rows) {
    const bufferOf = (/** @type {TensorSpec} */ { dtype, shape }) => new Uint8Array(nbytesOf(dtype, withBatch(shape, rows)));
    this.session = session;
    this.rows = rows;
    this.outputNames = outputs;
    /** Where the results asked for are among the model's outputs. */
    this.places = outputs.map((name) => session.outputs.findIndex((spec) => spec.name === name));
    /** Copied to the model by each run: its memory holds other tensors after it. */
    this.slots = session.inputs.map(bufferOf);
    this.results = this.places.map((place) => bufferOf(session.outputs[place]));
    /** @type {StagedBuffer | undefined} */
    this.staged = undefined;
    this.isClosed = false;
  }

  /**
   * @param {string} name
   * @returns {Uint8Array<ArrayBuffer>} The bytes of an input, to be written into before a run.
   */
  slot(name) {
    const found = this.slots[this.session.inputs.findIndex((spec) => spec.name === name)];
    if (!found || this.isClosed) {
      throw new EdgeInferError(`Input \`${name}\` has no buffer in this call`, "input_error", { details: { input: name } });
    }
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
   * @throws {EdgeInferError} `execution_error` where the model fails.
   */
  run() {
    const { memory, start } = this.session;
    if (this.isClosed || !memory) throw new EdgeInferError("The call is closed", "input_error", { hint: "load the model again" });
    for (let row = 0; row < this.rows; row++) {
      this.slots.forEach((bytes, i) => memory.inputs[i].set(partAt(bytes, row, this.rows)));
      if (!this.session.keepsState) this.session.startOver();
      try {
        start();
      } catch (cause) {
        throw new EdgeInferError(`The compiled model failed: ${cause}`, "execution_error", { hint: "compile the model again", cause });
      }
      this.places.forEach((place, i) => partAt(this.results[i], row, this.rows).set(memory.outputs[place]));
    }
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {{dtype: DType, shape: number[]}}
   */
  description(index) {
    const { dtype, shape } = this.session.outputs[this.places[index]];
    return { dtype, shape: withBatch(shape, this.rows) };
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
    return this.results[index];
  }

  /** @returns {Record<string, Tensor>} The outputs: views, overwritten by the next run. */
  get outputs() {
    return Object.fromEntries(
      this.outputNames.map((name, i) => [name, { data: arrayOver(this.description(i).dtype, this.results[i]), ...this.description(i) }]),
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
    const source = this.results[index];
    if (!target) {
      this.results[index] = new Uint8Array(source.byteLength);
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
    this.staged = new StagedBuffer(buffer, this.slots, this.results);
    this.staged.fill();
  }

  /** Run on the inputs in the shared buffer, and put the outputs there. */
  cross() {
    StagedBuffer.cross(this);
  }

  /** Give the buffers back. A second call does nothing. */
  close() {
    this.isClosed = true;
    this.staged?.close();
  }
}

/**
 * @param {readonly (number | string)[]} shape
 * @param {number} rows
 * @returns {number[]} The shape, of so many samples where its batch is free.
 */
function withBatch(shape, rows) {
  return shape.map((dim) => (typeof dim === "string" ? rows : dim));
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes Of all samples.
 * @param {number} row
 * @param {number} rows
 * @returns {Uint8Array<ArrayBuffer>} Those of one sample.
 */
function partAt(bytes, row, rows) {
  if (rows === 1) return bytes;
  const size = bytes.byteLength / rows;
  return bytes.subarray(row * size, (row + 1) * size);
}

/**
 * @param {Uint8Array | WebAssembly.Module} model
 * @returns {{module: WebAssembly.Module, program: Program, run: () => void, memory: ArrayBuffer}}
 */
function instantiate(model) {
  try {
    const module = model instanceof WebAssembly.Module ? model : new WebAssembly.Module(/** @type {Uint8Array<ArrayBuffer>} */ (model));
    const [section] = WebAssembly.Module.customSections(module, SECTION);
    if (!section) throw new TypeError(`it has no section \`${SECTION}\``);
    /** @type {Program} */
    const program = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(section));
    if (program?.version !== SECTION_VERSION) throw new TypeError(`its version is ${program?.version}, expected ${SECTION_VERSION}`);
    for (const side of [program.inputs, program.outputs]) if (!Array.isArray(side)) throw new TypeError("it lists no inputs or outputs");
    const isSample = (/** @type {ProgramTensor} */ tensor) => tensor?.shape?.[0] === 1;
    if (program.row && ![...program.inputs, ...program.outputs].every(isSample)) throw new TypeError("a tensor is not one sample of a batch");
    const { exports } = new WebAssembly.Instance(module, {});
    const { run, memory } = exports;
    if (typeof run !== "function" || !(memory instanceof WebAssembly.Memory)) throw new TypeError("it has no `run` or no `memory`");
    takeDot(module, exports);
    return { module, program, run: /** @type {() => void} */ (run), memory: /** @type {ArrayBuffer} */ (memory.buffer) };
  } catch (cause) {
    const said = cause instanceof Error ? cause.message : cause;
    throw new EdgeInferError(`The file is not a compiled model that can run here: ${said}`, "unsupported_model", { hint: NOT_COMPILED, cause });
  }
}

/**
 * Let a model call the int8 convolution for this processor. Relaxed SIMD takes sixteen products in one instruction on those
 * that have it (AVX-VNNI). What it gives is left open where a value has all eight bits, so the processor is asked first: only
 * where it is exact, of unsigned or of signed bytes, the results are those of the usual one. `model.js` of
 * `edge-infer compile --to page` has the same lines, as it imports nothing.
 *
 * @param {WebAssembly.Module} module
 * @param {WebAssembly.Exports} exports Of an instance of it.
 */
function takeDot(module, { memory, table }) {
  const [section] = WebAssembly.Module.customSections(module, DOT_SECTION);
  if (!section || !WebAssembly.validate(section)) return;
  const dot = /** @type {any} */ (new WebAssembly.Instance(new WebAssembly.Module(section), { env: { memory } }).exports);
  if (dot.is_exact()) /** @type {WebAssembly.Table} */ (table).set(0, dot.convolution_int8);
}

/**
 * @param {ProgramTensor} tensor
 * @param {number} base The address of the model's image.
 * @param {ArrayBuffer} memory
 * @returns {Uint8Array<ArrayBuffer>}
 */
function partOf(tensor, base, memory) {
  const isSize = (/** @type {unknown} */ value) => Number.isSafeInteger(value) && Number(value) >= 0;
  const { name, dtype, shape, offset } = tensor ?? {};
  const isKnown = Object.hasOwn(DTYPES, dtype) && DTYPES[dtype].bits >= 8 && Array.isArray(shape) && shape.every(isSize);
  const start = base + offset;
  const end = isKnown ? start + nbytesOf(dtype, shape) : NaN;
  if (typeof name !== "string" || !isSize(base) || !isSize(offset) || !(end <= memory.byteLength) || start % (DTYPES[dtype].bits / 8)) {
    throw new EdgeInferError(`The file is not a compiled model that can run here: \`${name}\` lies outside of its memory`, "unsupported_model", {
      hint: NOT_COMPILED,
    });
  }
  return new Uint8Array(memory, start, end - start);
}

/**
 * @param {[offset: number, nbytes: number, initial: number]} state
 * @param {number} base The address of the model's image.
 * @param {ArrayBuffer} memory
 * @returns {{now: Uint8Array, first: Uint8Array}} Its memory, and a copy of its first value.
 */
function variableOf(state, base, memory) {
  const [offset, nbytes, initial] = Array.isArray(state) ? state : [NaN, NaN, NaN];
  const places = [base, offset, nbytes, initial + 1, base + Math.max(offset, initial) + nbytes];
  if (!places.every(Number.isSafeInteger) || Math.min(...places) < 0 || places[4] > memory.byteLength) {
    throw new EdgeInferError("The file is not a compiled model that can run here: a variable lies outside of its memory", "unsupported_model", {
      hint: NOT_COMPILED,
    });
  }
  const first = initial < 0 ? new Uint8Array(nbytes) : new Uint8Array(memory, base + initial, nbytes).slice();
  return { now: new Uint8Array(memory, base + offset, nbytes), first };
}
