/**
 * The memory of onnxruntime-web's wasm module: allocations, strings, tensors, and its error codes as `EdgeInferError`.
 *
 * The facts about the exported functions come from the package itself (onnxruntime-web 1.30.0, MIT:
 * `lib/wasm/wasm-core-impl.ts`, `session-options.ts`, `wasm-types.ts`) and from the C++ behind them
 * (`onnxruntime/wasm/api.cc`): pointers and sizes are 32 bits, a tensor made by `_OrtCreateTensor` uses the caller's
 * memory and copies only strings, and whatever a call hands out is freed by `_OrtFree`.
 *
 * The module always makes its memory shared, also with one thread: growing it never detaches a view that was taken
 * before. `TextDecoder` refuses such views, so text is copied out first. A thread that grows the memory updates only
 * its own `HEAPU8`; `getValue` brings the caller's up to date.
 */

import { EdgeInferError } from "../errors.js";
import { DTYPES, dtypeOfCode, nbytesOf, sizeOf } from "../tensors.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */

/**
 * @typedef {object} OrtModule What Emscripten's factory returns; only what is used here.
 * @property {Uint8Array<SharedArrayBuffer>} HEAPU8
 * @property {Uint32Array<SharedArrayBuffer>} HEAPU32
 * @property {(pointer: number, type: string) => number} getValue
 * @property {(bytes: number) => number} _malloc
 * @property {(pointer: number) => void} _free
 * @property {(threads: number, logLevel: number) => number} _OrtInit
 * @property {(code: number, message: number) => number} _OrtGetLastError
 * @property {(...values: (number | boolean)[]) => number} _OrtCreateSessionOptions
 * @property {(options: number, name: number, size: number) => number} _OrtAddFreeDimensionOverride
 * @property {(options: number, key: number, value: number) => number} _OrtAddSessionConfigEntry
 * @property {(options: number) => number} _OrtReleaseSessionOptions
 * @property {(data: number, bytes: number, options: number) => number} _OrtCreateSession
 * @property {(session: number) => number} _OrtReleaseSession
 * @property {(path: string, data: Pick<Uint8Array, "byteLength" | "subarray">) => void} mountExternalData
 * @property {() => void} unmountExternalData
 * @property {(session: number, inputs: number, outputs: number) => number} _OrtGetInputOutputCount
 * @property {(session: number, index: number, name: number, metadata: number) => number} _OrtGetInputOutputMetadata
 * @property {(pointer: number) => number} _OrtFree
 * @property {(dtype: number, data: number, bytes: number, dims: number, rank: number, place: number) => number}
 *   _OrtCreateTensor
 * @property {(tensor: number, dtype: number, data: number, dims: number, rank: number) => number} _OrtGetTensorData
 * @property {(tensor: number) => number} _OrtReleaseTensor
 * @property {(session: number, inputNames: number, inputs: number, inputCount: number, outputNames: number,
 *   outputCount: number, outputs: number, options: number) => number} _OrtRun
 */

/** The functions without which the engine cannot work; their absence means another version of the file. */
export const REQUIRED_EXPORTS = [
  "getValue",
  "_malloc",
  "_free",
  "_OrtInit",
  "_OrtGetLastError",
  "_OrtCreateSessionOptions",
  "_OrtAddFreeDimensionOverride",
  "_OrtAddSessionConfigEntry",
  "_OrtReleaseSessionOptions",
  "_OrtCreateSession",
  "_OrtReleaseSession",
  "mountExternalData",
  "unmountExternalData",
  "_OrtGetInputOutputCount",
  "_OrtGetInputOutputMetadata",
  "_OrtFree",
  "_OrtCreateTensor",
  "_OrtGetTensorData",
  "_OrtReleaseTensor",
  "_OrtRun",
];

// onnxruntime_c_api.h, OrtErrorCode.
const ERROR_NAMES = [
  "OK",
  "FAIL",
  "INVALID_ARGUMENT",
  "NO_SUCHFILE",
  "NO_MODEL",
  "ENGINE_ERROR",
  "RUNTIME_EXCEPTION",
  "INVALID_PROTOBUF",
  "MODEL_LOADED",
  "NOT_IMPLEMENTED",
  "INVALID_GRAPH",
  "EP_FAIL",
];
const CPU = 1;
// Pointers have 32 bits: a larger number would wrap around to a small one.
const MAX_BYTES = 2 ** 32;

/** @param {string} said @param {string} code @returns {string} The code, unless it says that memory is short. */
function codeOf(said, code) {
  return /bad_alloc|out of memory|\(OOM\)|failed to allocate memory/i.test(said) ? "out_of_memory" : code;
}

/** The memory of one wasm module, with calls that throw `EdgeInferError` instead of returning codes. */
export class OrtHeap {
  /** @param {OrtModule} module */
  constructor(module) {
    this.module = module;
    /** What aborted the module, after which it must not be called again. */
    this.aborted = "";
    // Four words that calls write their answers to.
    this.words = this.alloc(16);
  }

  /** @returns {number} The bytes that the module's memory holds now. */
  get size() {
    return this.module.HEAPU8.byteLength;
  }

  /**
   * @param {number} bytes
   * @returns {number} A pointer, to be freed by `free`.
   */
  alloc(bytes) {
    // One byte at least: a null pointer would stand for a tensor that has no data.
    const pointer = bytes < MAX_BYTES ? this.module._malloc(Math.max(1, bytes)) : 0;
    if (pointer === 0) {
      throw new EdgeInferError(`The engine has no memory left for ${bytes} bytes; it holds ${this.size}`, "out_of_memory", {
        hint: "close sessions and tensors that are not used any more",
        details: { bytes, heap: this.size },
      });
    }
    return pointer;
  }

  /** @param {number} pointer */
  free(pointer) {
    if (pointer !== 0 && !this.aborted) this.module._free(pointer);
  }

  /**
   * @param {number} pointer
   * @param {number} length
   * @returns {Uint8Array<SharedArrayBuffer>} A view, valid until the memory is freed.
   */
  view(pointer, length) {
    return this.module.HEAPU8.subarray(pointer, pointer + length);
  }

  /**
   * @param {number} pointer
   * @returns {number} The 32-bit word there.
   */
  word(pointer) {
    return this.module.HEAPU32[pointer >>> 2];
  }

  /**
   * @param {number} pointer
   * @param {readonly number[]} values
   */
  setWords(pointer, values) {
    this.module.HEAPU32.set(values, pointer >>> 2);
  }

  /**
   * @param {string} text
   * @returns {number} A pointer to a C string, to be freed by `free`.
   */
  allocText(text) {
    const bytes = new TextEncoder().encode(text);
    const pointer = this.alloc(bytes.length + 1);
    this.module.HEAPU8.set(bytes, pointer);
    this.module.HEAPU8[pointer + bytes.length] = 0;
    return pointer;
  }

  /**
   * @param {number} pointer
   * @param {number} [end] Where the text ends; without it, at the first NUL.
   * @returns {string}
   */
  text(pointer, end = this.module.HEAPU8.indexOf(0, pointer)) {
    return new TextDecoder().decode(this.module.HEAPU8.slice(pointer, end));
  }

  /**
   * Call the module where it may abort, which leaves it unusable.
   *
   * @template T
   * @param {() => T} call
   * @param {string} what What was being done, for the message.
   * @returns {T}
   */
  guard(call, what) {
    if (this.aborted) {
      throw new EdgeInferError(`The engine stopped earlier: ${this.aborted}`, "backend_unavailable", { hint: "reload the page" });
    }
    try {
      const result = call();
      this.module.getValue(0, "i8");
      return result;
    } catch (error) {
      if (error instanceof EdgeInferError) throw error;
      this.aborted = `${what}: ${error instanceof Error ? error.message : String(error)}`;
      throw new EdgeInferError(`The engine stopped while ${this.aborted}`, codeOf(this.aborted, "execution_error"), {
        hint: "reload the page; with less memory in use it may work",
        cause: error,
      });
    }
  }

  /**
   * Make the error of the call that failed last.
   *
   * @param {string} what What failed: the start of the message.
   * @param {string} code The error's code.
   * @returns {EdgeInferError}
   */
  error(what, code) {
    this.module._OrtGetLastError(this.words, this.words + 4);
    const [number, pointer] = [this.word(this.words), this.word(this.words + 4)];
    const text = pointer === 0 ? "no reason given" : this.text(pointer);
    const name = ERROR_NAMES[number] ?? `code ${number}`;
    const details = { engine: "ort-web", ort_code: number, ort_name: name, ort_text: text };
    return new EdgeInferError(`${what}: ${text}`, codeOf(text, code), { details });
  }

  /**
   * Make a tensor over memory of the heap.
   *
   * @param {DType} dtype
   * @param {readonly number[]} shape
   * @param {number} data
   * @param {number} bytes
   * @returns {number} The tensor, to be given to `release`.
   */
  createTensor(dtype, shape, data, bytes) {
    const dims = this.alloc(4 * shape.length);
    try {
      this.setWords(dims, shape);
      const handle = this.module._OrtCreateTensor(DTYPES[dtype].code, data, bytes, dims, shape.length, CPU);
      if (handle === 0) throw this.error(`The engine cannot make a ${dtype} tensor of shape (${shape})`, "input_error");
      return handle;
    } finally {
      this.free(dims);
    }
  }

  /**
   * Make a tensor of strings; they are copied.
   *
   * @param {readonly string[]} strings
   * @param {readonly number[]} shape
   * @returns {number}
   */
  createStrings(strings, shape) {
    const texts = strings.map((text) => this.allocText(text));
    const pointers = this.alloc(4 * texts.length);
    try {
      this.setWords(pointers, texts);
      return this.createTensor("string", shape, pointers, 4 * texts.length);
    } finally {
      for (const pointer of [pointers, ...texts]) this.free(pointer);
    }
  }

  /** @param {number} handle */
  release(handle) {
    if (handle !== 0 && !this.aborted) this.module._OrtReleaseTensor(handle);
  }

  /**
   * Look at a tensor that the engine made.
   *
   * @param {number} handle
   * @param {string} name Its name, for the message.
   * @returns {{dtype: DType, shape: number[], data: number}} For strings, `data` must be freed by `_OrtFree`.
   */
  describe(handle, name) {
    const words = this.words;
    if (this.module._OrtGetTensorData(handle, words, words + 4, words + 8, words + 12) !== 0) {
      throw this.error(`Output \`${name}\` cannot be read`, "unsupported_model");
    }
    const [code, data, dims, rank] = [0, 4, 8, 12].map((offset) => this.word(words + offset));
    const shape = Array.from({ length: rank }, (_, axis) => this.word(dims + 4 * axis));
    this.module._OrtFree(dims);
    const dtype = dtypeOfCode(code);
    if (dtype === undefined) {
      throw new EdgeInferError(`Output \`${name}\` has ONNX's element type ${code}, which has no name here`, "unsupported_model", {
        hint: "convert the model so that this output is of a plain type",
        details: { output: name, type: code },
      });
    }
    return { dtype, shape, data };
  }

  /**
   * Read what a tensor of strings holds. A string that holds a NUL character is cut there if it is the last.
   *
   * @param {number} handle
   * @param {string} name
   * @returns {string[]}
   */
  strings(handle, name) {
    const { shape, data } = this.describe(handle, name);
    try {
      const count = sizeOf(shape);
      return Array.from({ length: count }, (_, i) => {
        const start = this.word(data + 4 * i);
        return i + 1 < count ? this.text(start, this.word(data + 4 * (i + 1))) : this.text(start);
      });
    } finally {
      this.module._OrtFree(data);
    }
  }
}

/**
 * A tensor in the engine's memory: an output that was kept there, or one made by `OrtEngine.tensor`. It can be fed
 * to any session of the same engine without a copy, until it is closed.
 */
export class EngineTensor {
  location = "engine";

  /**
   * @param {OrtHeap} heap
   * @param {number} handle
   * @param {{dtype: DType, shape: number[], data: number}} description
   * @param {boolean} ownsData Whether the data was allocated by us and not by the engine.
   */
  constructor(heap, handle, { dtype, shape, data }, ownsData = false) {
    this.heap = heap;
    this.dtype = dtype;
    this.shape = shape;
    this.nbytes = nbytesOf(dtype, shape);
    this.pointer = data;
    /** @type {{heap: OrtHeap, handle: number, data: number}} */
    this.held = { heap, handle, data: ownsData ? data : 0 };
    forgotten.register(this, this.held, this);
  }

  /** @returns {number} The engine's handle; an `EdgeInferError` where the tensor is closed. */
  get handle() {
    if (this.held.handle === 0) {
      throw new EdgeInferError("The tensor is closed", "input_error", { hint: "keep the output again with `keep`" });
    }
    return this.held.handle;
  }

  /** @returns {Uint8Array<SharedArrayBuffer>} Its bytes where they lie: valid until the tensor is closed. */
  get bytes() {
    return this.heap.view(this.handle === 0 ? 0 : this.pointer, this.nbytes);
  }

  /** @returns {string[]} The elements of a tensor of strings. */
  get strings() {
    return this.heap.strings(this.handle, "kept");
  }

  /** Give the memory back. A second call does nothing. */
  close() {
    forgotten.unregister(this);
    release(this.held);
  }
}

/** @param {{heap: OrtHeap, handle: number, data: number}} held */
function release(held) {
  held.heap.release(held.handle);
  held.heap.free(held.data);
  held.handle = held.data = 0;
}

// A net for tensors that nobody closed: the page's memory pressure knows nothing of the engine's.
const forgotten = new FinalizationRegistry(release);
