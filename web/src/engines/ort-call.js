/**
 * A run with fixed shapes: its input and output buffers lie in the engine's memory and are used again.
 *
 * An output whose shape follows from the inputs' is computed straight into its buffer. Where it does not, or where
 * the model's own shapes turn out to be wrong, the engine allocates the output, run by run.
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, checkShape, nbytesOf, symbolSizes } from "../tensors.js";
import { EngineTensor } from "./ort-heap.js";
import { StagedBuffer } from "./staged-buffer.js";

/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {{dtype: DType, shape: number[], data: number, array?: import("../tensors.js").NumberArray}} Description
 *   `array` is over the data, where it stays in its place. */
/** @typedef {{heap: import("./ort-heap.js").OrtHeap, handle: number, inputs: TensorSpec[], outputs: TensorSpec[],
 *   namePointers: Map<string, number>[]}} LoadedModel The session that a call is of. */

/** @typedef {{heap: import("./ort-heap.js").OrtHeap, pointers: number[], handles: Set<number>, owned: Set<number>}} Held */

/** A prepared run; made by `OrtSession.bind`. What it returns is overwritten by its next run. */
export class OrtCall {
  /**
   * @param {LoadedModel} session
   * @param {Record<string, number[] | null>} shapes
   * @param {string[]} outputs
   * @param {string[]} keep
   * @param {string[]} placed
   */
  constructor(session, shapes, outputs, keep, placed) {
    this.session = session;
    this.heap = session.heap;
    this.outputNames = outputs;
    this.outputSpecs = outputs.map((name) => /** @type {TensorSpec} */ (session.outputs.find((o) => o.name === name)));
    this.keeps = outputs.map((name) => keep.includes(name) && !placed.includes(name));
    this.isPlaced = outputs.map((name) => placed.includes(name));
    this.placedCount = this.isPlaced.filter(Boolean).length;
    /** The place of each output among the inputs; -1 where it is not also an input. @type {number[]} */
    this.passed = outputs.map((name) => session.inputs.findIndex((spec) => spec.name === name));
    /** What `close` frees: memory, tensors, and the memory of tensors. @type {Held} */
    this.held = { heap: this.heap, pointers: [], handles: new Set(), owned: new Set() };
    forgotten.register(this, this.held, this);
    /** @type {Map<string, {spec: TensorSpec, shape: number[], handle: number, bytes?: Uint8Array<SharedArrayBuffer>}>} */
    this.slots = new Map();
    /** The inputs that are fed by a tensor of the engine, each with its place. @type {number[]} */
    this.fedPlaces = [];
    /** @type {(Description & {handle: number} | null)[]} */
    this.fixed = outputs.map(() => null);
    /** What the last run gave for the outputs that are not fixed. @type {(Description & {handle: number} | null)[]} */
    this.given = outputs.map(() => null);
    this.hasRun = false;
    /** @type {StagedBuffer | undefined} */
    this.staged = undefined;
    /** Whether every run is from now on the same single call of the engine. */
    this.isSettled = false;
    this.isClosed = false;
    const { module } = this.heap;
    this.repeat = () => {
      if (this.start(module) !== 0) throw this.failure();
    };
    // Four tables of pointers, as `_OrtRun` wants them.
    const [ins, outs] = [session.inputs.length, outputs.length];
    this.inNames = this.alloc(8 * (ins + outs));
    this.inValues = this.inNames + 4 * ins;
    this.outNames = this.inValues + 4 * ins;
    this.outValues = this.outNames + 4 * outs;
    try {
      this.bindInputs(shapes);
      this.bindOutputs(shapes);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** @param {number} bytes */
  alloc(bytes) {
    const pointer = this.heap.alloc(bytes);
    this.held.pointers.push(pointer);
    return pointer;
  }

  /** @param {Record<string, number[] | null>} shapes */
  bindInputs(shapes) {
    const { heap, session } = this;
    heap.setWords(this.inNames, session.inputs.map((spec) => Number(session.namePointers[0].get(spec.name))));
    session.inputs.forEach((spec, place) => {
      const shape = shapes[spec.name];
      if (shape === undefined) {
        throw new EdgeInferError(`Input \`${spec.name}\` has no shape`, "input_error", { details: { input: spec.name } });
      }
      if (shape === null) {
        this.fedPlaces.push(place);
        return;
      }
      checkShape(spec, shape);
      /** @type {{spec: TensorSpec, shape: number[], handle: number, bytes?: Uint8Array<SharedArrayBuffer>}} */
      const slot = { spec, shape: [...shape], handle: 0 };
      this.slots.set(spec.name, slot);
      if (spec.dtype === "string") return;
      const bytes = nbytesOf(spec.dtype, shape);
      const data = this.alloc(bytes);
      slot.bytes = heap.view(data, bytes);
      slot.handle = heap.createTensor(spec.dtype, shape, data, bytes);
      this.held.handles.add(slot.handle);
      heap.setWords(this.inValues + 4 * place, [slot.handle]);
    });
  }

  /** @param {Record<string, number[] | null>} shapes */
  bindOutputs(shapes) {
    const { heap, session } = this;
    heap.setWords(this.outNames, this.outputNames.map((name) => Number(session.namePointers[1].get(name))));
    const known = Object.fromEntries(Object.entries(shapes).filter(([, shape]) => shape !== null));
    const sizes = symbolSizes(session.inputs, /** @type {Record<string, number[]>} */ (known));
    this.outputSpecs.forEach(({ dtype, shape }, i) => {
      const dims = shape.map((dim) => (typeof dim === "number" ? dim : (sizes.get(dim) ?? null)));
      // An empty shape may also be one that the model does not tell.
      // The engine hands an input on as its output, and leaves a buffer for that output untouched.
      const isOpen = shape.length === 0 || dims.includes(null) || dtype === "string" || this.passed[i] >= 0;
      if (isOpen || this.keeps[i] || this.isPlaced[i]) return;
      const fixed = /** @type {number[]} */ (dims);
      const bytes = nbytesOf(dtype, fixed);
      const data = this.alloc(bytes);
      const handle = heap.createTensor(dtype, fixed, data, bytes);
      this.held.handles.add(handle);
      this.fixed[i] = { dtype, shape: fixed, data, handle, array: arrayOver(dtype, heap.view(data, bytes)) };
    });
  }

  /**
   * @param {string} name
   * @returns {Uint8Array<SharedArrayBuffer>} The bytes of an input's buffer, to be written into.
   */
  slot(name) {
    const bytes = this.slots.get(name)?.bytes;
    if (!bytes || this.isClosed) {
      throw new EdgeInferError(`Input \`${name}\` has no buffer in this call`, "input_error", { details: { input: name } });
    }
    return bytes;
  }

  /** @returns {Record<string, import("../tensors.js").NumberArray>} The input buffers as typed arrays, by name. */
  get inputs() {
    const named = [...this.slots.values()].filter(({ spec }) => spec.dtype !== "string");
    return Object.fromEntries(named.map(({ spec }) => [spec.name, arrayOver(spec.dtype, this.slot(spec.name))]));
  }

  /**
   * Fill an input of strings.
   *
   * @param {string} name
   * @param {Iterable<string>} strings
   */
  writeStrings(name, strings) {
    const slot = this.slots.get(name);
    const place = this.session.inputs.findIndex((spec) => spec.name === name);
    if (!slot || slot.spec.dtype !== "string") throw new EdgeInferError(`Input \`${name}\` takes no strings`, "input_error");
    const handle = this.heap.createStrings([...strings], slot.shape);
    this.drop(slot.handle);
    slot.handle = handle;
    this.held.handles.add(handle);
    this.heap.setWords(this.inValues + 4 * place, [handle]);
  }

  /** @param {number} handle */
  drop(handle) {
    this.held.handles.delete(handle);
    this.heap.release(handle);
  }

  /**
   * Run on what the buffers hold.
   *
   * @param {...EngineTensor} tensors First those of the inputs that are fed by the engine's tensors, then those that
   *   outputs are written into, each in the order of the session's inputs and of the outputs asked for.
   * @returns {string | undefined} Nothing where every output is in its buffer; else JSON: for each output that is not,
   *   its index, dtype and shape.
   * @throws {EdgeInferError} `execution_error` where the engine fails, with ONNX Runtime's text.
   */
  run(...tensors) {
    const { heap } = this;
    if (this.isClosed || this.session.handle === 0) {
      throw new EdgeInferError("The call is closed", "input_error", { hint: "prepare it again" });
    }
    if (this.isSettled) {
      heap.guard(this.repeat, "running a model");
      return undefined;
    }
    this.dropGiven();
    this.fedPlaces.forEach((place, i) => heap.setWords(this.inValues + 4 * place, [this.fed(place, tensors[i])]));
    const targets = tensors.slice(this.fedPlaces.length);
    if (targets.length < this.placedCount || !targets.every((one) => one instanceof EngineTensor)) {
      throw new EdgeInferError(`The call writes into ${this.placedCount} tensors of the engine, and other values came`, "input_error");
    }
    heap.guard(() => this.attempt(targets), "running a model");
    this.hasRun = true;
    this.placePassed(tensors, targets);
    const open = this.readOutputs();
    // Nothing to feed, to place or to ask for: what the tables of pointers hold is right for the next run too.
    this.isSettled = this.fedPlaces.length === 0 && this.fixed.every(Boolean);
    return open;
  }

  /**
   * @param {number} place
   * @param {EngineTensor | undefined} tensor
   * @returns {number}
   */
  fed(place, tensor) {
    const spec = this.session.inputs[place];
    if (!(tensor instanceof EngineTensor) || tensor.heap !== this.heap) {
      throw new EdgeInferError(`Input \`${spec.name}\` expects a tensor that this engine kept`, "input_error");
    }
    if (tensor.dtype !== spec.dtype) {
      throw new EdgeInferError(`Input \`${spec.name}\` has dtype ${tensor.dtype}, expected ${spec.dtype}`, "input_error");
    }
    checkShape(spec, tensor.shape);
    return tensor.handle;
  }

  /**
   * Write into tensors of the engine the outputs that are also inputs, which the engine does not.
   *
   * @param {EngineTensor[]} tensors Those that inputs are fed by.
   * @param {EngineTensor[]} targets
   */
  placePassed(tensors, targets) {
    let next = 0;
    this.passed.forEach((place, i) => {
      if (!this.isPlaced[i]) return;
      const target = targets[next++];
      if (place < 0) return;
      const fed = this.fedPlaces.indexOf(place);
      target.bytes.set(fed < 0 ? this.slot(this.outputNames[i]) : tensors[fed].bytes);
    });
  }

  /** @param {EngineTensor[]} targets */
  attempt(targets) {
    if (this.execute(targets) === 0) return;
    const error = this.failure();
    // The shapes that a model states for its outputs are sometimes wrong: let the engine allocate them.
    if (this.hasRun || !this.fixed.some(Boolean)) throw error;
    this.fixed.fill(null);
    if (this.execute(targets) !== 0) throw this.failure();
  }

  /** @param {EngineTensor[]} targets */
  execute(targets) {
    const { heap } = this;
    let next = 0;
    const values = this.fixed.map((fixed, i) => (this.isPlaced[i] ? targets[next++].handle : (fixed?.handle ?? 0)));
    heap.setWords(this.outValues, values);
    return this.start(heap.module);
  }

  /** @param {import("./ort-heap.js").OrtModule} module */
  start(module) {
    return module._OrtRun(
      this.session.handle,
      this.inNames,
      this.inValues,
      this.session.inputs.length,
      this.outNames,
      this.outputNames.length,
      this.outValues,
      0,
    );
  }

  failure() {
    return this.heap.error("The engine failed", "execution_error");
  }

  readOutputs() {
    const open = [];
    for (let i = 0; i < this.fixed.length; i++) {
      if (this.fixed[i] || this.isPlaced[i]) continue;
      const handle = this.heap.word(this.outValues + 4 * i);
      // Held before it is described, so that a failure leaves nothing behind.
      this.held.handles.add(handle);
      const given = (this.given[i] = { dtype: /** @type {DType} */ ("uint8"), shape: [0], data: 0, handle });
      Object.assign(given, this.heap.describe(handle, this.outputNames[i]));
      if (given.dtype === "string") this.heap.module._OrtFree(given.data);
      else if (this.passed[i] >= 0 && this.keeps[i]) this.own(given);
      open.push([i, given.dtype, given.shape]);
    }
    return open.length > 0 ? JSON.stringify(open) : undefined;
  }

  /**
   * Put an output that lies in the memory of an input into memory of its own.
   *
   * @param {Description & {handle: number}} given
   */
  own(given) {
    const bytes = nbytesOf(given.dtype, given.shape);
    const data = this.heap.alloc(bytes);
    this.heap.view(data, bytes).set(this.heap.view(given.data, bytes));
    this.drop(given.handle);
    given.handle = this.heap.createTensor(given.dtype, given.shape, data, bytes);
    this.held.handles.add(given.handle);
    given.data = data;
    this.held.owned.add(data);
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {Description & {handle: number}} What the last run gave, or a fixed output will be.
   */
  description(index) {
    const found = this.fixed[index] ?? this.given[index];
    if (!found) {
      throw new EdgeInferError(`Output \`${this.outputNames[index]}\` is not there: run the call first`, "input_error");
    }
    return found;
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {boolean} Whether the output lies in the same buffer after every run.
   */
  isFixed(index) {
    return this.fixed[index] !== null;
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {Uint8Array<SharedArrayBuffer>} The output's bytes where they lie: valid until the next run.
   */
  view(index) {
    const { dtype, shape, data } = this.description(index);
    return this.heap.view(data, nbytesOf(dtype, shape));
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {import("../tensors.js").NumberArray} The output where it lies: valid until the next run.
   */
  array(index) {
    const { dtype, array } = this.description(index);
    return array ?? arrayOver(dtype, this.view(index));
  }

  /**
   * @param {number} index Of the outputs asked for.
   * @returns {string[]} The elements of an output of strings.
   */
  strings(index) {
    return this.heap.strings(this.description(index).handle, this.outputNames[index]);
  }

  /** @returns {Record<string, import("../tensors.js").Tensor>} The outputs; numbers are views, overwritten by the next run. */
  get outputs() {
    const at = (/** @type {number} */ i) => {
      const { dtype, shape } = this.description(i);
      return { data: dtype === "string" ? this.strings(i) : this.array(i), dtype, shape };
    };
    const own = this.outputNames.map((name, i) => ({ name, i })).filter(({ i }) => !this.keeps[i] && !this.isPlaced[i]);
    return Object.fromEntries(own.map(({ name, i }) => [name, at(i)]));
  }

  /**
   * Take an output that was kept out of this call: it stays where it is and belongs to the caller.
   *
   * @param {number} index Of the outputs asked for.
   * @returns {EngineTensor}
   */
  take(index) {
    const given = this.given[index];
    if (!given) {
      throw new EdgeInferError(`Output \`${this.outputNames[index]}\` was not kept by this call`, "input_error");
    }
    this.given[index] = null;
    this.held.handles.delete(given.handle);
    return new EngineTensor(this.heap, given.handle, given, this.held.owned.delete(given.data));
  }

  dropGiven() {
    this.given.forEach((given, i) => {
      if (given) this.drop(given.handle);
      if (given && this.held.owned.delete(given.data)) this.heap.free(given.data);
      this.given[i] = null;
    });
  }

  /**
   * Share a buffer with Python, so that a run is one crossing of the languages instead of one for each tensor. It holds
   * the bytes of all inputs and then of all outputs, in their order and without gaps: now those that the engine has.
   *
   * @param {import("./staged-buffer.js").Shareable} buffer
   */
  stage(buffer) {
    this.staged?.close();
    const inputs = [...this.slots.values()].map(({ bytes }) => bytes ?? new Uint8Array(0));
    this.staged = new StagedBuffer(buffer, inputs, this.outputNames.map((_, i) => this.view(i)));
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
    this.staged = undefined;
    this.given.fill(null);
    forgotten.unregister(this);
    release(this.held);
  }
}

/** @param {Held} held */
function release({ heap, pointers, handles, owned }) {
  for (const handle of handles) heap.release(handle);
  handles.clear();
  for (const pointer of [...pointers.splice(0), ...owned]) heap.free(pointer);
  owned.clear();
}

const forgotten = new FinalizationRegistry(release);
