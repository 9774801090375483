/** Load an ONNX model into onnxruntime-web's module: its settings, and weights that the engine reads where they lie. */

import { EdgeInferError } from "../errors.js";
import { weightsApart } from "./onnx-weights.js";

/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */
/** @typedef {import("./ort-heap.js").OrtHeap} OrtHeap */

/**
 * @typedef {object} SessionOptions
 * @property {"disabled" | "basic" | "extended" | "layout" | "all"} [graphOptimizationLevel] `all` unless given.
 * @property {Record<string, string>} [config] ONNX Runtime's configuration entries: `session.x64quantprecision`, ...
 * @property {Record<string, number>} [freeDimensions] Sizes for symbolic dimensions, by symbol.
 * @property {"sequential" | "parallel"} [executionMode] `sequential` unless given.
 * @property {boolean} [memoryArena] Whether the engine keeps freed memory for its next run; it does not unless asked.
 * @property {boolean} [memoryPattern] Whether it plans a run's memory by the one before; it does not unless asked.
 * @property {Record<string, Uint8Array>} [externalData] The files that the model refers to, by the names it gives them.
 * @property {0 | 1 | 2 | 3 | 4} [logLevel] What the engine writes to the console, from all (0) to fatal errors (4),
 *   which it is unless given: other errors are thrown, with the same text.
 */

const MODES = { sequential: 0, parallel: 1 };
const LEVELS = { disabled: 0, basic: 1, extended: 2, layout: 3, all: 99 };

/**
 * Load a model into the engine.
 *
 * @param {OrtHeap} heap
 * @param {Uint8Array | StoredFile} model The bytes of an `.onnx` or `.ort` file.
 * @param {SessionOptions} options
 * @param {boolean} isReserved Whether they lie in the heap already, by `OrtEngine.reserve`; then they are freed.
 * @returns {number} The engine's session, which `_OrtReleaseSession` frees.
 * @throws {EdgeInferError} `unsupported_model`: the engine cannot load it; `input_error`: it does not take an option.
 */
export function createSession(heap, model, options, isReserved) {
  const { config = {}, freeDimensions = {}, externalData = {}, logLevel = 4 } = options;
  const { memoryArena = false, memoryPattern = false } = options;
  const level = choice("graphOptimizationLevel", LEVELS, options.graphOptimizationLevel ?? "all");
  const mode = choice("executionMode", MODES, options.executionMode ?? "sequential");
  const { module } = heap;
  /** @type {number[]} */
  const texts = [];
  const text = (/** @type {string} */ value) => texts[texts.push(heap.allocText(value)) - 1];
  const apart = weightsApart(model);
  const [place, size] = [isInMemory(model) ? model.byteOffset : 0, model.byteLength];
  /** What lies in the engine's memory. @type {number[]} */
  const held = isReserved ? [place] : [];
  const settings = module._OrtCreateSessionOptions(
    level,
    memoryArena,
    memoryPattern,
    mode,
    false,
    0,
    text("edge-infer"),
    logLevel,
    0,
    0,
  );
  try {
    if (settings === 0) throw heap.error("The engine takes no session options", "unsupported");
    for (const [key, value] of Object.entries(config)) {
      if (module._OrtAddSessionConfigEntry(settings, text(key), text(value)) !== 0) {
        throw heap.error(`The engine does not take the setting \`${key}\` = \`${value}\``, "input_error");
      }
    }
    for (const [symbol, size] of Object.entries(freeDimensions)) {
      if (module._OrtAddFreeDimensionOverride(settings, text(symbol), size) !== 0) {
        throw heap.error(`The engine does not take the size ${size} for \`${symbol}\``, "input_error");
      }
    }
    for (const [name, bytes] of Object.entries(externalData)) module.mountExternalData(name, bytes);
    if (apart) {
      // The engine's memory may move as it grows, and a file that lies in it with it.
      const inHeap = (/** @type {number} */ from, /** @type {number} */ to) => module.HEAPU8.subarray(place + from, place + to);
      const inStorage = (/** @type {number} */ from, /** @type {number} */ to) => /** @type {StoredFile} */ (model).lend(from, to);
      const subarray = isInMemory(model) ? inHeap : inStorage;
      module.mountExternalData(apart.name, isInMemory(model) && !isReserved ? model : { byteLength: size, subarray });
      held.push(heap.alloc(apart.graph.byteLength));
      module.HEAPU8.set(apart.graph, held[held.length - 1]);
      const handle = module._OrtCreateSession(held[held.length - 1], apart.graph.byteLength, settings);
      if (handle !== 0) return handle;
      // It wants a value of such weights before it reads them, or the model is wrong.
    }
    const data = isReserved ? place : heap.alloc(size);
    if (!isReserved) {
      held.push(data);
      if (isInMemory(model)) module.HEAPU8.set(model, data);
      else model.copyTo(module.HEAPU8, data);
    }
    const handle = module._OrtCreateSession(data, size, settings);
    if (handle === 0) throw explain(heap.error("The engine cannot load the model", "unsupported_model"));
    return handle;
  } finally {
    module.unmountExternalData();
    if (settings !== 0) module._OrtReleaseSessionOptions(settings);
    for (const pointer of [...held, ...texts]) heap.free(pointer);
  }
}

/** @param {Uint8Array | StoredFile} model @returns {model is Uint8Array} */
function isInMemory(model) {
  return model instanceof Uint8Array;
}

/**
 * @param {string} option
 * @param {Record<string, number>} known
 * @param {string} given
 * @returns {number}
 */
function choice(option, known, given) {
  if (Object.hasOwn(known, given)) return known[given];
  throw new EdgeInferError(`${option} is \`${given}\`; choose from ${Object.keys(known).join(", ")}`, "input_error");
}

/**
 * Add a hint to what ONNX Runtime says about a model it refuses.
 *
 * @param {EdgeInferError} error
 * @returns {EdgeInferError}
 */
function explain(error) {
  if (/external (data|initializer)|External data|model_path/.test(error.message)) {
    error.hint = "the model refers to files with its weights: give them as `externalData`, or save it as one file";
  } else if (/not a registered function|NOT_IMPLEMENTED|Could not find an implementation/.test(error.message)) {
    error.hint = "the page's engine lacks this operator: convert the model with `edge-infer convert`";
  } else if (/maximum supported size/.test(error.message)) {
    error.hint = "a page's engine reads files of less than 2 GB: convert the model to int8 or fp16, or load(url, { fallback: SERVER })";
  } else if (error.details.ort_name === "INVALID_PROTOBUF" || /No graph was found/.test(error.message)) {
    error.hint = "the file is not an ONNX model, or was cut short";
  }
  return error;
}
