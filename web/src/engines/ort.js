/**
 * Start the engine for ONNX files: onnxruntime-web's plain wasm module, driven directly.
 *
 * Only its start is asynchronous. Loading a model and running it are plain synchronous calls, so that Python in the
 * page can call `session.run()` without JSPI, and faster than through the official JavaScript interface. The exported
 * functions are internal to onnxruntime-web (MIT), and their facts were read from its package: therefore the version
 * is pinned to the byte, and a tiny model with a known answer is run at every start.
 */

import { ROOT, oneFile } from "../fetch/root.js";
import { checkInput, nbytesOf } from "../tensors.js";
import { EngineTensor, OrtHeap, REQUIRED_EXPORTS } from "./ort-heap.js";
import { OrtSession } from "./ort-session.js";
import { allowThreadScript, hintForStart, ownScript, threadsFor, warnOfOneThread, whyThreads } from "./threads.js";
import { compileWasm, folderOf, importScript, instantiate, selfTest } from "./wasm-file.js";
import { compileBytes } from "./wasm-module.js";

/** @typedef {import("./ort-heap.js").OrtModule} OrtModule */
/** @typedef {import("../tensors.js").DType} DType */

/** The only version of onnxruntime-web whose files fit. */
export const ORT_VERSION = "1.30.0";
/** The size of that version's `ort-wasm-simd-threaded.wasm`. */
export const ORT_WASM_BYTES = 14_239_897;
// The engine's log level: what is less than fatal is thrown, with the same text.
const FATAL = 4;

/** @type {import("./wasm-file.js").Pinned} */
const PINNED = {
  name: "onnxruntime-web",
  npm: "onnxruntime-web",
  version: ORT_VERSION,
  functions: REQUIRED_EXPORTS,
  // IR 8, opset 13, written by onnx.helper.
  model: "CAgSADpBCg4KAXgKAXgSAXkiA0FkZBIDYWJpWhQKAXgSDwoNCAESCQoDEgFuCgIIAmIUCgF5Eg8KDQgBEgkKAxIBbgoCCAJCBAoAEA0=",
  rows: ["n", "n"],
};

/**
 * @typedef {object} EngineOptions
 * @property {URL | string} [base] The folder of the engine's two files; `vendor/onnxruntime-web/` beside `src/`.
 * @property {number} [threads] How many threads an operator may use. Unless given: 1 where the page has no
 *   threads (see `threads.js`), else half the processors and at most 4; on two cores a second thread gains nothing.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {KeptEngine} [kept] What an earlier start left: nothing is fetched but the script.
 */
/**
 * @typedef {object} KeptEngine
 * @property {() => Promise<Uint8Array<ArrayBuffer>>} wasm The wasm file.
 * @property {() => Promise<Uint8Array>} memory Its memory from 0 on, as `memoryImage` gave it; for one thread.
 */

/** A started engine. Its sessions and tensors live in its own memory. */
export class OrtEngine {
  name = "ort-web";
  version = ORT_VERSION;

  /**
   * @param {OrtModule} module
   * @param {number} threads
   * @param {string} threadsWhy What decided on their number.
   * @param {boolean} [isInitialized] Whether its memory is that of an engine that has started.
   */
  constructor(module, threads, threadsWhy, isInitialized = false) {
    this.heap = new OrtHeap(module);
    this.threads = threads;
    this.threadsWhy = threadsWhy;
    /** @type {Uint8Array | undefined} */
    this.reserved = undefined;
    if (!isInitialized && module._OrtInit(threads, FATAL) !== 0) throw this.heap.error("The engine cannot start", "backend_unavailable");
  }

  /**
   * Load a model.
   *
   * @param {Uint8Array | import("../cache/stored-file.js").StoredFile} model The bytes of an `.onnx` or `.ort` file.
   * @param {import("./ort-load.js").SessionOptions} [options]
   * @returns {OrtSession}
   * @throws {EdgeInferError} `unsupported_model`: the engine cannot load it.
   */
  createSession(model, options) {
    const isReserved = model === this.reserved;
    if (isReserved) this.reserved = undefined;
    return new OrtSession(this.heap, model, options, isReserved);
  }

  /**
   * Make room for a model's bytes in the engine's memory. Whoever fills it and gives it to `createSession`, which
   * frees it, saves a copy of the model.
   *
   * @param {number} bytes
   * @returns {Uint8Array}
   */
  reserve(bytes) {
    if (this.reserved) this.heap.free(this.reserved.byteOffset);
    this.reserved = this.heap.view(this.heap.alloc(bytes), bytes);
    return this.reserved;
  }

  /** @returns {number} The bytes that its memory holds now: that of all its sessions. */
  get memoryBytes() {
    return this.heap.module.HEAPU8.byteLength;
  }

  /** @returns {Uint8Array<ArrayBuffer>} A copy of its memory, up to the last page in use: an engine of one thread starts with it. */
  memoryImage() {
    const bytes = this.heap.module.HEAPU8;
    let end = bytes.length;
    while (end > 0 && bytes[end - 1] === 0) end--;
    const image = new Uint8Array(Math.ceil(end / 65536) * 65536);
    image.set(bytes.subarray(0, image.length));
    return image;
  }

  /**
   * Put a tensor into the engine's memory, to be fed to sessions without further copies.
   *
   * @param {DType} dtype
   * @param {number[]} shape
   * @param {unknown} [value] Zeros unless given.
   * @returns {EngineTensor}
   */
  tensor(dtype, shape, value) {
    const { heap } = this;
    const spec = { name: "tensor", dtype, shape };
    const checked = value === undefined ? null : checkInput(spec, { data: dataOf(value), dtype, shape });
    if (dtype === "string") {
      const strings = checked?.strings ?? Array(shape.reduce((a, b) => a * b, 1)).fill("");
      return new EngineTensor(heap, heap.createStrings(strings, shape), { dtype, shape, data: 0 });
    }
    const bytes = nbytesOf(dtype, shape);
    const data = heap.alloc(bytes);
    const target = heap.view(data, bytes);
    if (checked?.bytes) target.set(checked.bytes);
    else target.fill(0);
    try {
      return new EngineTensor(heap, heap.createTensor(dtype, shape, data, bytes), { dtype, shape, data }, true);
    } catch (error) {
      heap.free(data);
      throw error;
    }
  }
}

/** @param {unknown} value */
function dataOf(value) {
  return value !== null && typeof value === "object" && "data" in value ? value.data : value;
}

/**
 * Start an engine.
 *
 * @param {EngineOptions} [options]
 * @returns {Promise<OrtEngine>}
 * @throws {EdgeInferError} `backend_unavailable`: a file is missing or of another version, or the browser is too old.
 */
export async function startOrtEngine({ base = `${ROOT}vendor/onnxruntime-web/`, threads, onProgress, kept } = {}) {
  const folder = await folderOf(PINNED, new URL(base, globalThis.location?.href), "ort-wasm-simd-threaded.mjs");
  const compiled = kept
    ? kept.wasm().then(compileBytes)
    : compileWasm(PINNED, new URL("ort-wasm-simd-threaded.wasm", folder), ORT_WASM_BYTES, onProgress);
  compiled.catch(() => {}); // told where it is awaited
  const script = await ownScript(new URL(oneFile.address || "ort-wasm-simd-threaded.mjs", folder), threads);
  let count = threadsFor(threads, script);
  let why = whyThreads(threads, script);
  const memory = kept && count === 1 ? kept.memory() : undefined;
  const importing = oneFile.ort ?? importScript(script, ORT_VERSION).then((module) => module.default);
  const [factory, wasm, image] = await Promise.all([importing, compiled, memory]);
  // The script's address is for the factory of the one file, which is not in a module of its own.
  const start = () => instantiate(PINNED, folder, factory, wasm, { numThreads: count, threadScript: script.href });
  if (count > 1) allowThreadScript(script);
  /** @type {OrtModule} */
  const module = await start().catch((error) => {
    if (count === 1 || threads !== undefined) throw error;
    count = 1;
    const [said, hint] = [`its threads cannot start: ${error.cause ?? error}`, hintForStart(error.cause ?? error)];
    why = `${said}; ${hint}`;
    warnOfOneThread(said, hint);
    return start();
  });
  // What the engine does at its start, registering its operators, is in its memory alone.
  if (image) module.HEAPU8.set(image);
  const engine = new OrtEngine(module, count, why, image !== undefined);
  selfTest(PINNED, folder, engine);
  return engine;
}
