/** An ONNX model that onnxruntime-web's module has loaded: its inputs and outputs, and synchronous runs. */

import { EdgeInferError } from "../errors.js";
import { bytesOver, checkInputs, checkNames, dtypeOfCode } from "../tensors.js";
import { OrtCall } from "./ort-call.js";
import { EngineTensor } from "./ort-heap.js";
import { createSession } from "./ort-load.js";

/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").NumberArray} NumberArray */
/** @typedef {import("./ort-heap.js").OrtHeap} OrtHeap */
/** @typedef {import("./ort-load.js").SessionOptions} SessionOptions */

/**
 * @typedef {object} RunOptions
 * @property {string[]} [outputs] The outputs to compute; all unless given.
 * @property {Record<string, NumberArray | EngineTensor>} [into] Where to write outputs: an array, or a tensor of the
 *   engine, which is written in place.
 * @property {string[]} [keep] Outputs that stay in the engine and are returned as `EngineTensor`.
 * @property {ArrayBuffer[]} [spare] Memory that nobody needs once the inputs are in the engine: outputs of just that length
 *   come in it. New memory costs more than the copy into it.
 */

// Calls, with their buffers, that a session keeps for the shapes it saw last.
const MAX_CALLS = 4;

/** @type {string[]} */
const NO_NAMES = [];
/** @type {EngineTensor[]} */
const NO_TENSORS = [];
/** @type {Record<string, NumberArray | EngineTensor>} */
const NOTHING = {};

/**
 * @param {readonly number[] | null} shape
 * @param {readonly number[]} other
 */
function isSame(shape, other) {
  return shape !== null && shape.length === other.length && shape.every((dim, axis) => dim === other[axis]);
}

/** A loaded model. Close it to give back its memory. */
export class OrtSession {
  /**
   * @param {OrtHeap} heap
   * @param {Uint8Array | StoredFile} model The bytes of an `.onnx` or `.ort` file.
   * @param {SessionOptions} [options]
   * @param {boolean} [isReserved] Whether they lie in the heap already, by `OrtEngine.reserve`; then they are freed.
   * @throws {EdgeInferError} `unsupported_model`: the engine cannot load it; the message is ONNX Runtime's.
   */
  constructor(heap, model, options = {}, isReserved = false) {
    this.heap = heap;
    this.handle = heap.guard(() => createSession(heap, model, options, isReserved), "loading a model");
    /** @type {{heap: OrtHeap, handle: number, names: number[]}} */
    this.held = { heap, handle: this.handle, names: [] };
    /** @type {TensorSpec[]} */
    this.inputs = [];
    /** @type {TensorSpec[]} */
    this.outputs = [];
    /** Where the engine keeps each name, inputs first. @type {Map<string, number>[]} */
    this.namePointers = [new Map(), new Map()];
    /** @type {Map<string, OrtCall>} */
    this.calls = new Map();
    this.outputNames = /** @type {string[]} */ ([]);
    /** What the last run of all outputs used. @type {{shapes: (readonly number[])[], call: OrtCall} | undefined} */
    this.last = undefined;
    try {
      this.readSpecs();
      this.outputNames = this.outputs.map((spec) => spec.name);
    } catch (error) {
      this.close();
      throw error;
    }
    forgotten.register(this, this.held, this);
  }

  readSpecs() {
    const { heap } = this;
    const counts = heap.words;
    if (heap.module._OrtGetInputOutputCount(this.handle, counts, counts + 4) !== 0) {
      throw heap.error("The engine does not tell the model's inputs", "unsupported_model");
    }
    const [inputs, outputs] = [heap.word(counts), heap.word(counts + 4)];
    for (let i = 0; i < inputs + outputs; i++) {
      const [spec, pointer] = readSpec(heap, this.handle, i);
      this.held.names.push(pointer);
      (i < inputs ? this.inputs : this.outputs).push(spec);
      this.namePointers[i < inputs ? 0 : 1].set(spec.name, pointer);
    }
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} feeds A value for each input: a typed array, `{data, dtype, shape}`, nested
   *   arrays, or an `EngineTensor`.
   * @param {RunOptions} [options]
   * @returns {Record<string, Tensor | EngineTensor>}
   * @throws {EdgeInferError} `input_error` where a value does not fit, `execution_error` where the engine fails.
   */
  run(feeds, { outputs = this.outputNames, into = NOTHING, keep = NO_NAMES, spare = [] } = {}) {
    if (outputs !== this.outputNames) checkNames("Output", outputs, this.outputs);
    if (into !== NOTHING || keep !== NO_NAMES) checkNames("Output", [...Object.keys(into), ...keep], this.outputs);
    const values = checkInputs(this.inputs, feeds, (value) => value instanceof EngineTensor);
    const shapes = values.map((checked) => checked && checked.shape);
    const placed = into === NOTHING ? NO_NAMES : outputs.filter((name) => into[name] instanceof EngineTensor);
    const tensors = placed.length || shapes.includes(null) ? this.tensorsOf(values, feeds, placed, into) : NO_TENSORS;

    const call = this.callFor(shapes, outputs, keep, placed);
    this.inputs.forEach(({ name }, i) => {
      const { bytes = null, strings = null } = values[i] ?? {};
      if (strings) call.writeStrings(name, strings);
      else if (bytes) call.slot(name).set(bytes);
    });
    call.run(...tensors);
    /** @type {Record<string, Tensor | EngineTensor>} */
    const results = {};
    outputs.forEach((name, i) => {
      if (placed.includes(name)) results[name] = /** @type {EngineTensor} */ (into[name]);
      else if (keep.includes(name)) results[name] = call.take(i);
      else results[name] = copyOut(call, i, name, /** @type {NumberArray | undefined} */ (into[name]), spare);
    });
    return results;
  }

  /**
   * @param {unknown[]} values
   * @param {Record<string, unknown>} feeds
   * @param {string[]} placed
   * @param {Record<string, unknown>} into
   * @returns {EngineTensor[]} Those that inputs are fed by, then those that outputs are written into.
   */
  tensorsOf(values, feeds, placed, into) {
    const fed = this.inputs.filter((_, i) => !values[i]).map(({ name }) => feeds[name]);
    return /** @type {EngineTensor[]} */ ([...fed, ...placed.map((name) => into[name])]);
  }

  /**
   * Make a call with fixed shapes, whose buffers are used again: the fast path.
   *
   * @param {Record<string, number[] | null>} shapes The shape of each input; null for one that will be fed by a
   *   tensor of the engine.
   * @param {string[]} [outputs] The outputs to compute; all unless given.
   * @param {string[]} [keep] Outputs that stay in the engine.
   * @param {string[]} [placed] Outputs that are written into tensors of the engine.
   * @returns {OrtCall} To be closed by the caller.
   */
  bind(shapes, outputs = this.outputs.map((spec) => spec.name), keep = [], placed = []) {
    if (this.handle === 0) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
    checkNames("Output", [...outputs, ...keep, ...placed], this.outputs);
    return new OrtCall(this, shapes, outputs, keep, placed);
  }

  /**
   * Return a call for these shapes, made now or kept from an earlier run. It belongs to the session.
   *
   * @param {(number[] | null)[]} shapes In the order of the inputs.
   * @param {string[]} outputs
   * @param {string[]} keep
   * @param {string[]} placed
   * @returns {OrtCall}
   */
  callFor(shapes, outputs, keep, placed) {
    const isPlain = outputs === this.outputNames && keep === NO_NAMES && placed === NO_NAMES;
    const { last } = this;
    if (isPlain && last && shapes.every((shape, i) => isSame(shape, last.shapes[i]))) return last.call;
    const key = JSON.stringify([shapes, outputs, keep, placed]);
    const named = () => Object.fromEntries(this.inputs.map(({ name }, i) => [name, shapes[i]]));
    const found = this.calls.get(key) ?? this.bind(named(), outputs, keep, placed);
    this.calls.delete(key);
    this.calls.set(key, found);
    this.last = undefined;
    if (isPlain && !shapes.includes(null)) {
      this.last = { shapes: shapes.map((shape) => [...(shape ?? [])]), call: found };
    }
    if (this.calls.size > MAX_CALLS) {
      const [oldest, call] = /** @type {[string, OrtCall]} */ (this.calls.entries().next().value);
      this.calls.delete(oldest);
      call.close();
    }
    return found;
  }

  /** @returns {string} The specs as JSON: one crossing for a caller in another language. */
  describe() {
    return JSON.stringify({ inputs: this.inputs, outputs: this.outputs });
  }

  /** Give back the model's memory. A second call does nothing. */
  close() {
    for (const call of this.calls.values()) call.close();
    this.calls.clear();
    this.last = undefined;
    forgotten.unregister(this);
    release(this.held);
    this.handle = 0;
  }
}

/**
 * @param {OrtCall} call
 * @param {number} index
 * @param {string} name
 * @param {NumberArray | undefined} target
 * @param {ArrayBuffer[]} spare
 * @returns {Tensor}
 */
function copyOut(call, index, name, target, spare) {
  const { dtype, shape } = call.description(index);
  if (dtype === "string") return { data: call.strings(index), dtype, shape };
  const source = call.array(index);
  if (!target) {
    const found = spare.findIndex(({ byteLength }) => byteLength === source.byteLength);
    // A copy that is made of an array at once has no zeros written into it before.
    if (found < 0) return { data: new (kindOf(source))(source), dtype, shape };
    const data = new (kindOf(source))(spare.splice(found, 1)[0]);
    data.set(/** @type {any} */ (source));
    return { data, dtype, shape };
  }
  if (target.byteLength !== source.byteLength) {
    throw new EdgeInferError(
      `\`into\` gives output \`${name}\` ${target.byteLength} bytes, its shape (${shape}) takes ${source.byteLength}`,
      "input_error",
      { details: { output: name, expected: source.byteLength, got: target.byteLength } },
    );
  }
  bytesOver(target).set(bytesOver(source));
  return { data: target, dtype, shape };
}

/** @param {NumberArray} array @returns {any} What makes arrays of its kind. */
function kindOf(array) {
  return array.constructor;
}

/**
 * @param {OrtHeap} heap
 * @param {number} session
 * @param {number} index Of the inputs and outputs together.
 * @returns {[TensorSpec, number]} The spec, and the pointer to its name, which `_OrtFree` frees.
 */
function readSpec(heap, session, index) {
  const words = heap.words;
  if (heap.module._OrtGetInputOutputMetadata(session, index, words, words + 4) !== 0) {
    throw heap.error("The engine does not describe the model's tensors", "unsupported_model");
  }
  const [namePointer, metadata] = [heap.word(words), heap.word(words + 4)];
  try {
    const name = heap.text(namePointer);
    const code = heap.word(metadata);
    const dtype = dtypeOfCode(code);
    if (dtype === undefined) {
      throw new EdgeInferError(
        code === 0
          ? `\`${name}\` is a sequence, a map or optional, and only tensors can be passed`
          : `\`${name}\` has ONNX's element type ${code}, which has no name here`,
        "unsupported_model",
        { hint: "convert the model so that its inputs and outputs are plain tensors", details: { tensor: name } },
      );
    }
    const rank = heap.word(metadata + 4);
    const shape = Array.from({ length: rank }, (_, axis) => {
      const symbol = heap.word(metadata + 8 + 4 * axis);
      if (symbol !== 0) return heap.text(symbol);
      const size = heap.word(metadata + 8 + 4 * (rank + axis)) | 0;
      // A dimension without size or name: it gets a name of its own, so that no other is equal to it.
      return size >= 0 ? size : `${name}_${axis}`;
    });
    return [{ name, dtype, shape }, namePointer];
  } catch (error) {
    heap.module._OrtFree(namePointer);
    throw error;
  } finally {
    heap.module._OrtFree(metadata);
  }
}

/** @param {{heap: OrtHeap, handle: number, names: number[]}} held */
function release(held) {
  if (held.handle === 0 || held.heap.aborted) return;
  for (const pointer of held.names) held.heap.module._OrtFree(pointer);
  held.heap.module._OrtReleaseSession(held.handle);
  held.handle = 0;
}

const forgotten = new FinalizationRegistry(release);
