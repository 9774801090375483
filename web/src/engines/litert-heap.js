/**
 * The memory of LiteRT.js's wasm module: a model compiled for fixed shapes, its tensors, and errors as `EdgeInferError`.
 *
 * The bindings are those of `@litertjs/core` 2.5.3 (`dist/index.d.ts`, Apache-2.0). A view of the memory ends when the
 * memory grows, so one is taken for each copy. Every object of C++ is deleted by hand.
 */

import { EdgeInferError } from "../errors.js";
import { endNames } from "./tflite-file.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */
/** @typedef {{delete: () => void}} Deletable */
/** @typedef {Deletable & {size: () => number, get: (index: number) => any}} CppVector */
/** @typedef {Deletable & {dimensions: () => CppVector}} CppLayout */
/** @typedef {Deletable & {elementType: () => {value: number}, layout: () => CppLayout, bytes: () => number}} CppType */
/** @typedef {Deletable & {lock: (mode: unknown) => number, unlock: () => void, size: () => number, packedSize: () => number, tensorType: () => CppType}} CppBuffer */
/** @typedef {Deletable & {key: () => string, inputNames: () => CppVector, outputNames: () => CppVector}} CppSignature */
/**
 * @typedef {Deletable & {getNumSignatures: () => number, getSignature: (index: number) => CppSignature,
 *   getInputTensorType: (signature: number, index: number) => CppType,
 *   getOutputTensorType: (signature: number, index: number) => CppType}} CppModel
 */
/** @typedef {Deletable & {run: (signature: number, inputs: CppBuffer[]) => CppBuffer[]}} CppCompiled */

/**
 * @typedef {object} LiteRtModule What Emscripten's factory returns; only what is used here.
 * @property {Uint8Array<ArrayBuffer>} HEAPU8
 * @property {(bytes: number) => number} _malloc
 * @property {(pointer: number) => void} _free
 * @property {() => void} setupLogging
 * @property {{create: (device: object | null) => Deletable}} LiteRtEnvironment
 * @property {(environment: Deletable, data: number, bytes: number) => CppModel} loadModel
 * @property {(environment: Deletable, model: CppModel, options: object) => CppCompiled} compileModel
 * @property {{createManaged: (environment: Deletable, place: unknown, type: CppType, bytes: number) => CppBuffer}} LiteRtTensorBuffer
 * @property {{HOST_MEMORY: unknown}} LiteRtTensorBufferType
 * @property {{READ: unknown, WRITE: unknown}} LiteRtTensorBufferLockMode
 */

// `litert::ElementType` of LiteRT 2, by its numbers; those that a page has no array for are left out.
/** @type {Record<number, DType>} */
const DTYPES_BY_CODE = {
  1: "float32",
  2: "int32",
  3: "uint8",
  4: "int64",
  6: "bool",
  7: "int16",
  9: "int8",
  10: "float16",
  11: "float64",
  13: "uint64",
  16: "uint32",
  17: "uint16",
  19: "bfloat16",
};
const NAMES_BY_CODE = ["none", "", "", "", "", "string", "", "", "complex64", "", "", "", "complex128", "", "resource"];

/** The memory of one wasm module. */
export class LiteRtHeap {
  /**
   * @param {LiteRtModule} module
   * @param {string[]} log What the module printed last.
   * @param {number} [spareThreads] How many threads wait to be used, besides the caller's.
   * @param {object | null} [gpu] The device of WebGPU that its build runs on.
   */
  constructor(module, log, spareThreads = 0, gpu = null) {
    this.module = module;
    this.log = log;
    this.spareThreads = spareThreads;
    /** What aborted the module, after which it must not be called again. */
    this.aborted = "";
    module.setupLogging();
    this.environment = this.guard(() => module.LiteRtEnvironment.create(gpu), "starting", "backend_unavailable");
  }

  /** @returns {number} The bytes that the module's memory holds now. */
  get size() {
    return this.module.HEAPU8.byteLength;
  }

  /**
   * Call the module. A trap or an abort leaves it unusable.
   *
   * @template T
   * @param {() => T} call
   * @param {string} doing What is being done, for the message.
   * @param {string} code The code of the error where the module says no.
   * @returns {T}
   */
  guard(call, doing, code) {
    if (this.aborted) {
      throw new EdgeInferError(`The engine stopped earlier: ${this.aborted}`, "backend_unavailable", { hint: "reload the page" });
    }
    this.log.length = 0;
    try {
      return call();
    } catch (error) {
      if (error instanceof EdgeInferError) throw error;
      const said = error instanceof Error ? error.message : String(error);
      if (error instanceof WebAssembly.RuntimeError || error instanceof RangeError) {
        this.aborted = `${doing}: ${said}`;
        const isShort = /bad_alloc|out of memory|\(OOM\)/i.test(said);
        throw new EdgeInferError(`The engine stopped while ${this.aborted}`, isShort ? "out_of_memory" : "execution_error", {
          hint: "reload the page; with less memory in use it may work",
          details: { engine: "litert-web", heap: this.size },
          cause: error,
        });
      }
      throw this.failure(said, doing, code);
    }
  }

  /**
   * @param {string} said
   * @param {string} doing
   * @param {string} code
   */
  failure(said, doing, code) {
    const lines = this.log.filter((line) => line.startsWith("ERROR")).map((line) => line.replace(/^ERROR: (\[[^\]]*\] )?/, ""));
    const why = [...new Set([...lines, said.replace(/\s*[└├].*$/s, "").replace(/^ERROR: \[[^\]]*\]\s*/, "")])].filter(Boolean);
    const isSilent = why.length === 0;
    const text = why.join("; ") || `it gives no reason; its memory holds ${this.size} bytes`;
    const isUnknown = /ustom op|unresolved|builtin opcode/i.test(text);
    const isLoading = code === "unsupported_model";
    const hint = isUnknown
      ? "an operator of the model is not built into LiteRT.js: use an onnx variant"
      : isSilent
        ? "its memory may have run out, at 2 GiB: use smaller inputs, or close sessions that are not used any more"
        : isLoading
          ? "the file is cut short or no TFLite model: fetch or convert it again"
          : "";
    return new EdgeInferError(`The engine failed ${doing}: ${text}`, code, { hint, details: { engine: "litert-web", heap: this.size } });
  }

  /**
   * @param {number} bytes
   * @returns {number} A pointer, to be freed by `free`.
   */
  alloc(bytes) {
    const pointer = this.guard(() => this.module._malloc(Math.max(1, bytes)), `allocating ${bytes} bytes`, "execution_error");
    if (pointer === 0) {
      throw new EdgeInferError(`The engine has no memory left for ${bytes} bytes; it holds ${this.size}`, "out_of_memory", {
        hint: "close sessions that are not used any more",
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
   * @param {CppBuffer} buffer
   * @param {Uint8Array} bytes
   */
  write(buffer, bytes) {
    const pointer = buffer.lock(this.module.LiteRtTensorBufferLockMode.WRITE);
    this.module.HEAPU8.set(bytes, pointer);
    buffer.unlock();
  }

  /**
   * @param {CppBuffer} buffer
   * @param {Uint8Array} target
   */
  read(buffer, target) {
    const pointer = buffer.lock(this.module.LiteRtTensorBufferLockMode.READ);
    target.set(this.module.HEAPU8.subarray(pointer, pointer + target.byteLength));
    buffer.unlock();
  }

  /**
   * Read a tensor's type, and delete it.
   *
   * @param {CppType} type
   * @param {string} name Its name, for the message.
   * @returns {{dtype: DType, shape: number[]}} A free dimension is negative.
   */
  describe(type, name) {
    const code = type.elementType().value;
    const layout = type.layout();
    const shape = listOf(layout.dimensions());
    layout.delete();
    type.delete();
    const dtype = DTYPES_BY_CODE[code];
    if (dtype === undefined) {
      const kind = NAMES_BY_CODE[code] || `of LiteRT's element type ${code}`;
      throw new EdgeInferError(`\`${name}\` is ${kind}, which cannot be passed in a page`, "unsupported_model", {
        hint: "use an onnx variant, or convert the model so that its inputs and outputs are of a plain type",
        details: { tensor: name, type: code },
      });
    }
    return { dtype, shape };
  }
}

/**
 * @param {CppVector} vector It is deleted.
 * @returns {any[]}
 */
export function listOf(vector) {
  const items = Array.from({ length: vector.size() }, (_, i) => vector.get(i));
  vector.delete();
  return items;
}

/** A model that was compiled for fixed shapes of its inputs. */
export class LiteRtProgram {
  /**
   * @param {LiteRtHeap} heap
   * @param {Uint8Array | StoredFile} model
   * @param {number} threads At most; as many as are spare.
   */
  constructor(heap, model, threads) {
    this.heap = heap;
    // One that is not there yet could start only when this thread has returned to its event loop, and a run waits for it.
    const taken = Math.min(threads - 1, heap.spareThreads);
    heap.spareThreads -= taken;
    /** @type {{heap: LiteRtHeap, objects: Deletable[], pointer: number, threads: number}} */
    this.held = { heap, objects: [], pointer: 0, threads: taken };
    const { module, environment } = heap;
    const { held } = this;
    try {
      // The weights stay where they are: the compiled model refers to them.
      held.pointer = heap.alloc(model.byteLength);
      if (model instanceof Uint8Array) module.HEAPU8.set(model, held.pointer);
      else model.copyTo(module.HEAPU8, held.pointer);
      this.size = model.byteLength;
      const loaded = heap.guard(() => module.loadModel(environment, held.pointer, model.byteLength), "to load the model", "unsupported_model");
      this.model = loaded;
      held.objects.push(loaded);
      const options = { environment: { liteRtEnvironment: environment, webGpuDevice: null }, accelerator: "wasm" };
      const settings = { ...options, cpuOptions: { numThreads: taken + 1 }, gpuOptions: {}, webNNOptions: {} };
      this.compile = () => heap.guard(() => module.compileModel(environment, loaded, settings), "to load the model", "unsupported_model");
      this.compiled = this.compile();
      held.objects.push(this.compiled);
      const signature = loaded.getSignature(0);
      this.inputNames = endNames(/** @type {string[]} */ (listOf(signature.inputNames())), "input");
      this.outputNames = endNames(/** @type {string[]} */ (listOf(signature.outputNames())), "output");
      signature.delete();
    } catch (error) {
      release(held);
      throw error;
    }
    forgotten.register(this, held, this);
  }

  /** @returns {Uint8Array} The file in the engine's memory: valid until that grows. */
  get bytes() {
    return this.heap.module.HEAPU8.subarray(this.held.pointer, this.held.pointer + this.size);
  }

  /**
   * Make room for each input.
   *
   * @returns {CppBuffer[]} In the order of `inputNames`, each to be deleted.
   */
  createInputs() {
    const { module, environment } = this.heap;
    const create = (/** @type {number} */ i) => {
      const type = this.model.getInputTensorType(0, i);
      const buffer = module.LiteRtTensorBuffer.createManaged(environment, module.LiteRtTensorBufferType.HOST_MEMORY, type, type.bytes());
      type.delete();
      return buffer;
    };
    return this.heap.guard(() => this.inputNames.map((_, i) => create(i)), "to make room for inputs", "execution_error");
  }

  /** Compile the model again, so that its variables have their first values: LiteRT.js cannot reset them. */
  startOver() {
    const { objects } = this.held;
    objects.splice(objects.indexOf(this.compiled), 1);
    this.compiled.delete();
    this.compiled = this.compile();
    objects.push(this.compiled);
  }

  /**
   * @param {CppBuffer[]} inputs
   * @returns {CppBuffer[]} The outputs, each to be deleted.
   */
  run(inputs) {
    return this.heap.guard(() => this.compiled.run(0, inputs), "to run the model", "execution_error");
  }

  /** Give the memory back. A second call does nothing. */
  close() {
    forgotten.unregister(this);
    release(this.held);
  }
}

/** @param {{heap: LiteRtHeap, objects: Deletable[], pointer: number, threads: number}} held */
function release(held) {
  if (!held.heap.aborted) for (const object of held.objects.splice(0).reverse()) object.delete();
  held.heap.free(held.pointer);
  held.pointer = 0;
  held.heap.spareThreads += held.threads;
  held.threads = 0;
}

const forgotten = new FinalizationRegistry(release);
