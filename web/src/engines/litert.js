/**
 * Start the engine for `.tflite` files: the wasm module of LiteRT.js, driven directly.
 *
 * Only its start is asynchronous. Loading a model and running it are plain synchronous calls, as in `ort.js`, so that
 * Python in the page can call `session.run()` without JSPI; and other element types than the float32, int32 and uint8
 * of LiteRT.js's own interface can be passed. The bindings are those that `@litertjs/core` (Apache-2.0) declares for
 * itself: therefore its version is pinned to the byte, and a tiny model with a known answer is run at every start.
 */

import { ROOT } from "../fetch/root.js";
import { LiteRtHeap } from "./litert-heap.js";
import { LiteRtSession } from "./litert-session.js";
import { canShareMemory, ownScript, threadsFor, warnOfOneThread, whyThreads } from "./threads.js";
import { bytesOf, compileWasm, folderOf, importScript, instantiate, nodeRequire, selfTest } from "./wasm-file.js";

const POLICY_HINT = "let the page's Content-Security-Policy say `trusted-types edge-infer emscripten#workerPolicy2 'allow-duplicates'`";

/** @typedef {import("./litert-heap.js").LiteRtModule} LiteRtModule */

/** The only version of LiteRT.js whose files fit. */
export const LITERT_VERSION = "2.5.3";
/** The builds, and the size of the wasm file of each in that version. */
const BUILDS = {
  litert_wasm_internal: 9_367_934,
  litert_wasm_threaded_internal: 9_445_834,
  litert_wasm_compat_internal: 9_334_181,
};

// A module with one instruction of relaxed SIMD, i8x16.relaxed_swizzle, in binary: Safari compiles none.
const RELAXED_SIMD = "AGFzbQEAAAABBQFgAAF7AwIBAAoPAQ0AQQH9D0EC/Q/9gAIL";

// Written by edge_infer_converters.writers.tflite.
const SELF_TEST_MODEL =
  "HAAAAFRGTDMUABwAGAAUABAADAAIAAAAAAAEABQAAAAYAAAAkAAAAJgAAACkAAAAwAEAAAMAAAABAAAAEAAAAAAACgAQAAwACAAEAAoAAAAMAAAA" +
  "HAAAADwAAAAPAAAAc2VydmluZ19kZWZhdWx0AAEAAAAMAAAACAAMAAgABAAIAAAAAQAAAAQAAAABAAAAeQAAAAEAAAAMAAAAAAAGAAgABAAGAAAA" +
  "BAAAAAEAAAB4AAAAAQAAAAQAAADE/v//CgAAAGVkZ2UtaW5mZXIAAAEAAAAUAAAAAAAOABgAFAAQAAwACAAEAA4AAAAUAAAAIAAAAGAAAABkAAAA" +
  "aAAAAAkAAABzZWxmLXRlc3QAAAABAAAAFAAAAAAADgAUAAAAEAAMAAsABAAOAAAAEAAAAAAAAAsMAAAAEAAAAET///8BAAAAAQAAAAIAAAAAAAAA" +
  "AAAAAAEAAAABAAAAAQAAAAAAAAACAAAAVAAAAAQAAADK////AAAAAQwAAAAUAAAAGAAAAAIAAAD/////AgAAAAEAAAB5AAAAAgAAAAEAAAACAAAA" +
  "AAAWABQAEAAAAAAADAAAAAAAAAAIAAcAFgAAAAAAAAEMAAAAFAAAABgAAAACAAAA/////wIAAAABAAAAeAAAAAIAAAABAAAAAgAAAAEAAAAIAAAA" +
  "BAAEAAQAAAA=";

/** @type {import("./wasm-file.js").Pinned} */
const PINNED = {
  name: "LiteRT.js",
  npm: "@litertjs/core",
  version: LITERT_VERSION,
  functions: ["_malloc", "_free", "setupLogging", "LiteRtEnvironment", "loadModel", "compileModel", "LiteRtTensorBuffer"],
  model: SELF_TEST_MODEL,
  rows: ["x_0", "y_0"],
};

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
   * @param {string} threadsWhy What decided on their number.
   */
  constructor(heap, threads, threadsWhy) {
    this.heap = heap;
    this.threads = threads;
    this.threadsWhy = threadsWhy;
  }

  /** @returns {number} The bytes that its memory holds now: that of all its sessions. */
  get memoryBytes() {
    return this.heap.size;
  }

  /**
   * Load a model.
   *
   * @param {Uint8Array | import("../cache/stored-file.js").StoredFile} model The bytes of a `.tflite` file.
   * @returns {LiteRtSession}
   * @throws {EdgeInferError} `unsupported_model`: the engine cannot load it.
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
 * @throws {EdgeInferError} `backend_unavailable`: a file is missing or of another version, or the browser is too old.
 */
export async function startLiteRtEngine({ base = `${ROOT}vendor/litert/`, threads, onProgress } = {}) {
  const folder = await folderOf(PINNED, new URL(base, globalThis.location?.href), "litert_wasm_internal.js");
  const isRelaxed = WebAssembly.validate(bytesOf(RELAXED_SIMD));
  const threaded = await ownScript(new URL("litert_wasm_threaded_internal.js", folder), isRelaxed ? threads : 1);
  const wanted = threadsFor(threads, threaded);
  const count = isRelaxed ? wanted : 1;
  const build = !isRelaxed ? "litert_wasm_compat_internal" : count > 1 ? "litert_wasm_threaded_internal" : "litert_wasm_internal";
  const script = count > 1 ? threaded : new URL(`${build}.js`, folder);
  const compiling = compileWasm(PINNED, new URL(`${build}.wasm`, folder), BUILDS[build], onProgress);
  const [factory, wasm] = await Promise.all([importFactory(script), compiling]);
  const { log, printErr } = lastLines();
  const options = { mainScriptUrlOrBlob: script.href, locateFile: (/** @type {string} */ name) => new URL(name, folder).href };
  const restore = setPool(poolFor(count));
  const forget = await setNodeNames(script);
  /** @type {LiteRtModule} */
  let module;
  try {
    module = await instantiate(PINNED, folder, factory, wasm, { ...options, print: printErr, printErr });
  } catch (error) {
    const { cause } = /** @type {Error} */ (error);
    if (count === 1 || threads !== undefined || !(cause instanceof TypeError)) throw error;
    const [said, hint] = [`its threads cannot start: ${cause}`, POLICY_HINT];
    warnOfOneThread(said, hint);
    const engine = await startLiteRtEngine({ base, threads: 1, onProgress });
    engine.threadsWhy = `${said}; ${hint}`;
    return engine;
  } finally {
    restore();
    forget();
  }
  const why = isRelaxed ? whyThreads(threads, threaded) : "the browser has no relaxed SIMD, which LiteRT's threads need";
  const engine = new LiteRtEngine(new LiteRtHeap(module, log, poolFor(count)), count, why);
  selfTest(PINNED, folder, engine);
  return engine;
}

/**
 * Start another build of the same version, of one thread.
 *
 * @param {URL} base The folder of the engine's files.
 * @param {string} build
 * @param {number} bytes Of its wasm file.
 * @param {import("../fetch/download.js").OnProgress} [onProgress]
 * @returns {Promise<{module: LiteRtModule, log: string[]}>} With what it prints, the last lines.
 */
export async function startBuild(base, build, bytes, onProgress) {
  const folder = await folderOf(PINNED, base, `${build}.js`);
  const script = new URL(`${build}.js`, folder);
  const [factory, wasm] = await Promise.all([importFactory(script), compileWasm(PINNED, new URL(`${build}.wasm`, folder), bytes, onProgress)]);
  const { log, printErr } = lastLines();
  const options = { mainScriptUrlOrBlob: script.href, locateFile: (/** @type {string} */ name) => new URL(name, folder).href };
  return { module: await instantiate(PINNED, folder, factory, wasm, { ...options, print: printErr, printErr }), log };
}

function lastLines() {
  /** @type {string[]} */
  const log = [];
  const printErr = (/** @type {string} */ line) => {
    log.push(line);
    if (log.length > 20) log.shift();
  };
  return { log, printErr };
}

/**
 * Give the script what it takes from Node, where it is a module.
 *
 * @param {URL} script
 * @returns {Promise<() => void>} Ends it.
 */
async function setNodeNames(script) {
  const require = await nodeRequire();
  if (!require || "require" in globalThis) return () => {};
  const __filename = require("url").fileURLToPath(script);
  Object.assign(globalThis, { require, __filename, __dirname: require("path").dirname(__filename) });
  return () => ["require", "__filename", "__dirname"].forEach((name) => Reflect.deleteProperty(globalThis, name));
}

/** @returns {{build: string, bytes: number}} The build that is taken unasked here. */
export function buildOfThisBrowser() {
  const isThreaded = canShareMemory() && navigator.hardwareConcurrency > 3;
  const build = !WebAssembly.validate(bytesOf(RELAXED_SIMD)) ? "litert_wasm_compat_internal" : isThreaded ? "litert_wasm_threaded_internal" : "litert_wasm_internal";
  return { build, bytes: BUILDS[build] };
}

/** What was imported: a module runs once, however often it is asked for. @type {Map<string, (options: object) => Promise<LiteRtModule>>} */
const factories = new Map();
/** The last import. The next one waits for it, as both would put their names into the same place. @type {Promise<unknown>} */
let importing = Promise.resolve();

/**
 * Import a script that was written for `<script>` and `importScripts`, of which a module worker has neither. It gives
 * its factory to CommonJS where it finds that.
 *
 * @param {URL} url
 * @returns {Promise<(options: object) => Promise<LiteRtModule>>}
 */
function importFactory(url) {
  const turn = importing.then(() => importAlone(url));
  importing = turn.catch(() => undefined);
  return turn;
}

/**
 * @param {URL} url
 * @returns {Promise<(options: object) => Promise<LiteRtModule>>}
 */
async function importAlone(url) {
  const known = factories.get(url.href);
  if (known) return known;
  const place = /** @type {any} */ (globalThis);
  const before = Object.getOwnPropertyDescriptors({ exports: place.exports, module: place.module });
  const had = ["exports", "module"].filter((name) => Object.hasOwn(place, name));
  place.exports = {};
  place.module = { exports: {} };
  try {
    await importScript(url, LITERT_VERSION);
    const factory = place.module.exports.default;
    factories.set(url.href, factory);
    return factory;
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
