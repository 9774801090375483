/**
 * The engine for `.tflite` files: the wasm module of LiteRT.js, driven directly.
 *
 * Only its start is asynchronous. Loading a model and running it are plain synchronous calls, as in `ort.js`, so that
 * Python in the page can call `session.run()` without JSPI; and other element types than the float32, int32 and uint8
 * of LiteRT.js's own interface can be passed. The bindings are those that `@litertjs/core` (Apache-2.0) declares for
 * itself: therefore its version is pinned to the byte, and a tiny model with a known answer is run at every start.
 */

import { InferError } from "../errors.js";
import { LiteRtHeap } from "./litert-heap.js";
import { LiteRtSession } from "./litert-session.js";
import { threadsFor } from "./threads.js";
import { MISSING_HINT, compileWasm, instantiate } from "./wasm-file.js";

/** @typedef {import("./litert-heap.js").LiteRtModule} LiteRtModule */

/** The only version of LiteRT.js whose files fit. */
export const LITERT_VERSION = "2.5.3";
/** The builds, and the size of the wasm file of each in that version. */
const BUILDS = {
  litert_wasm_internal: 9_367_934,
  litert_wasm_threaded_internal: 9_445_834,
  litert_wasm_compat_internal: 9_334_181,
};
const REQUIRED = ["_malloc", "_free", "setupLogging", "LiteRtEnvironment", "loadModel", "compileModel", "LiteRtTensorBuffer"];

// A module with one instruction of relaxed SIMD, i8x16.relaxed_swizzle, in binary: Safari compiles none.
const RELAXED_SIMD = "AGFzbQEAAAABBQFgAAF7AwIBAAoPAQ0AQQH9D0EC/Q/9gAIL";

// y = x + x over x: float32[batch, 2]; written by edge_infer_converters.writers.tflite.
const SELF_TEST_MODEL =
  "HAAAAFRGTDMUABwAGAAUABAADAAIAAAAAAAEABQAAAAYAAAAkAAAAJgAAACkAAAAwAEAAAMAAAABAAAAEAAAAAAACgAQAAwACAAEAAoAAAAMAAAA" +
  "HAAAADwAAAAPAAAAc2VydmluZ19kZWZhdWx0AAEAAAAMAAAACAAMAAgABAAIAAAAAQAAAAQAAAABAAAAeQAAAAEAAAAMAAAAAAAGAAgABAAGAAAA" +
  "BAAAAAEAAAB4AAAAAQAAAAQAAADE/v//CgAAAGVkZ2UtaW5mZXIAAAEAAAAUAAAAAAAOABgAFAAQAAwACAAEAA4AAAAUAAAAIAAAAGAAAABkAAAA" +
  "aAAAAAkAAABzZWxmLXRlc3QAAAABAAAAFAAAAAAADgAUAAAAEAAMAAsABAAOAAAAEAAAAAAAAAsMAAAAEAAAAET///8BAAAAAQAAAAIAAAAAAAAA" +
  "AAAAAAEAAAABAAAAAQAAAAAAAAACAAAAVAAAAAQAAADK////AAAAAQwAAAAUAAAAGAAAAAIAAAD/////AgAAAAEAAAB5AAAAAgAAAAEAAAACAAAA" +
  "AAAWABQAEAAAAAAADAAAAAAAAAAIAAcAFgAAAAAAAAEMAAAAFAAAABgAAAACAAAA/////wIAAAABAAAAeAAAAAIAAAABAAAAAgAAAAEAAAAIAAAA" +
  "BAAEAAQAAAA=";

/**
 * @typedef {object} EngineOptions
 * @property {URL | string} [base] The folder of the engine's files; `vendor/litert/` beside `src/`.
 * @property {number} [threads] How many threads an operator may use; see `threads.js`. Where the
 *   browser has no relaxed SIMD there is one, the most that LiteRT.js is built for. A program that is compiled while
 *   the others have all threads has one.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 */

/** A started engine. Its sessions live in its own memory. */
export class LiteRtEngine {
  name = "litert-web";
  version = LITERT_VERSION;

  /**
   * @param {LiteRtHeap} heap
   * @param {number} threads
   */
  constructor(heap, threads) {
    this.heap = heap;
    this.threads = threads;
  }

  /**
   * Load a model.
   *
   * @param {Uint8Array} model The bytes of a `.tflite` file.
   * @returns {LiteRtSession}
   * @throws {InferError} `unsupported_model`: the engine cannot load it.
   */
  createSession(model) {
    return new LiteRtSession(this.heap, model, this.threads);
  }
}

/**
 * Start an engine.
 *
 * @param {EngineOptions} [options]
 * @returns {Promise<LiteRtEngine>}
 * @throws {InferError} `backend_unavailable`: a file is missing or of another version, or the browser is too old.
 */
export async function startLiteRtEngine({ base = new URL(/* @vite-ignore */ "../../vendor/litert/", import.meta.url), threads, onProgress } = {}) {
  const folder = new URL(base, globalThis.location?.href);
  const isRelaxed = WebAssembly.validate(bytesOf(RELAXED_SIMD));
  const wanted = threadsFor(threads, new URL("litert_wasm_threaded_internal.js", folder));
  const count = isRelaxed ? wanted : 1;
  const build = !isRelaxed ? "litert_wasm_compat_internal" : count > 1 ? "litert_wasm_threaded_internal" : "litert_wasm_internal";
  const script = new URL(`${build}.js`, folder);
  const wasmFile = {
    url: new URL(`${build}.wasm`, folder),
    bytes: BUILDS[build],
    needs: "a browser of 2021 or later is needed, with WebAssembly SIMD",
    wrongVersion: (/** @type {string} */ why) => wrongVersion(folder, why),
  };
  const [factory, wasm] = await Promise.all([importFactory(script), compileWasm(wasmFile, onProgress)]);
  /** @type {string[]} */
  const log = [];
  const printErr = (/** @type {string} */ line) => {
    log.push(line);
    if (log.length > 20) log.shift();
  };
  const options = { mainScriptUrlOrBlob: script.href, locateFile: (/** @type {string} */ name) => new URL(name, folder).href };
  const about = () => ({ name: "LiteRT.js", hint: `its files must all be of version ${LITERT_VERSION}` });
  const restore = setPool(poolFor(count));
  /** @type {LiteRtModule} */
  let module;
  try {
    module = await instantiate(factory, wasm, { ...options, print: printErr, printErr }, about);
  } finally {
    restore();
  }
  const missing = REQUIRED.filter((name) => typeof Reflect.get(module, name) !== "function");
  if (missing.length > 0) throw wrongVersion(folder, `it does not export ${missing.join(", ")}`);
  const engine = new LiteRtEngine(new LiteRtHeap(module, log, poolFor(count)), count);
  selfTest(engine, folder);
  return engine;
}

/** What was imported: a module runs once, however often it is asked for. @type {Map<string, (options: object) => Promise<LiteRtModule>>} */
const factories = new Map();

/**
 * Import a script that was written for `<script>` and `importScripts`, of which a module worker has neither. It gives
 * its factory to CommonJS where it finds that.
 *
 * @param {URL} url
 * @returns {Promise<(options: object) => Promise<LiteRtModule>>}
 */
async function importFactory(url) {
  const known = factories.get(url.href);
  if (known) return known;
  const place = /** @type {any} */ (globalThis);
  const before = Object.getOwnPropertyDescriptors({ exports: place.exports, module: place.module });
  const had = ["exports", "module"].filter((name) => Object.hasOwn(place, name));
  place.exports = {};
  place.module = { exports: {} };
  try {
    await import(url.href);
    const factory = place.module.exports.default;
    if (typeof factory !== "function") throw new TypeError("it gives no factory");
    factories.set(url.href, factory);
    return factory;
  } catch (cause) {
    throw new InferError(`The engine's file ${url} cannot be loaded`, "backend_unavailable", {
      hint: MISSING_HINT,
      details: { url: url.href, version: LITERT_VERSION },
      cause,
    });
  } finally {
    delete place.exports;
    delete place.module;
    for (const name of had) Object.defineProperty(place, name, before[/** @type {"exports" | "module"} */ (name)]);
  }
}

/**
 * @param {number} threads Of an operator.
 * @returns {number} The threads to start beside the caller's: enough for two programs, and for four of two threads each.
 */
function poolFor(threads) {
  return threads === 1 ? 0 : Math.max(4, 2 * (threads - 1));
}

/**
 * Let the module start as many threads as will be used: it starts one for every processor, whatever it is told.
 *
 * @param {number} threads
 * @returns {() => void} Ends it.
 */
function setPool(threads) {
  if (threads === 0 || typeof navigator === "undefined") return () => {};
  Object.defineProperty(navigator, "hardwareConcurrency", { value: threads, configurable: true });
  return () => void Reflect.deleteProperty(navigator, "hardwareConcurrency");
}

/**
 * Prove that the bindings do what this code takes them to do, another batch than the file's included.
 *
 * @param {LiteRtEngine} engine
 * @param {URL} folder
 */
function selfTest(engine, folder) {
  let said;
  try {
    const session = engine.createSession(bytesOf(SELF_TEST_MODEL));
    const specs = session.describe();
    const { data, shape } = session.run({ x: [[1, 2], [3, -4]] }).y;
    session.close();
    const expected =
      '{"inputs":[{"name":"x","dtype":"float32","shape":["x_0",2]}],"outputs":[{"name":"y","dtype":"float32","shape":["y_0",2]}]}';
    if (specs === expected && shape.join() === "2,2" && data.join() === "2,4,6,-8") return;
    said = `the test model gave [${data}] of shape (${shape}) and ${specs}`;
  } catch (error) {
    said = `the test model failed: ${error instanceof Error ? error.message : String(error)}`;
  }
  throw wrongVersion(folder, said);
}

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/**
 * @param {URL} folder
 * @param {string} why
 */
function wrongVersion(folder, why) {
  return new InferError(`${folder} does not hold LiteRT.js ${LITERT_VERSION}: ${why}`, "backend_unavailable", {
    hint: `npm install @litertjs/core@${LITERT_VERSION}, or pip install 'edge-infer[web]' again`,
    details: { expected: LITERT_VERSION },
  });
}
