/** Start each engine once, when it is first needed, and open models with the engine that reads their format. */

import { EdgeInferError } from "../errors.js";
import { ROOT } from "../fetch/root.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../bundle/manifest.js").Variant} Variant */
/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */

/**
 * @typedef {object} AnySession What the sessions of all engines have in common.
 * @property {readonly TensorSpec[]} inputs
 * @property {readonly TensorSpec[]} outputs
 * @property {(feeds: Record<string, unknown>, options: {outputs?: string[], spare?: ArrayBuffer[]}) =>
 *   Record<string, any> | Promise<Record<string, any>>} run
 * @property {() => void | Promise<void>} close
 * @property {boolean} [hasHiddenState] Whether the model keeps values of its own that no output shows.
 * @property {number} [memoryBytes] The bytes of its memory, where that is its own and not its engine's.
 * @property {() => AnySession} [keepingState] Makes a second one whose hidden state stays from run to run.
 */
/** @typedef {{name: string, version: string, device: string, threads: number, threadsWhy: string, fallbacks: string[]}} Placement */
/**
 * @typedef {object} Opener
 * @property {(model: Uint8Array, variant: Variant) => Promise<AnySession>} open
 * @property {(model: Uint8Array | StoredFile, variant: Variant) => Promise<AnySession>} [openInPlace] Where a file may lie in the storage.
 * @property {() => Placement} placement
 * @property {(session: AnySession) => number | null} [memory] The bytes that the engine's memory holds, or that of a session where each has its own.
 * @property {() => void} [abandon] Gives back what it holds, where nothing will be opened.
 */

/**
 * @typedef {object} EngineSettings
 * @property {string} root The URL under which `src/` and `vendor/` lie.
 * @property {number} [threads] How many threads an operator may use.
 */
/** @typedef {{ort: import("./ort.js").OrtEngine, litert: import("./litert.js").LiteRtEngine, compiled: import("./compiled.js").CompiledEngine}} Engines */
/** @typedef {Partial<EngineSettings> & Pick<import("./ort.js").EngineOptions, "onProgress" | "kept">} StartOptions */

/** @type {{[name in keyof Engines]: (root: URL, options: StartOptions) => Promise<Engines[name]>}} */
const STARTERS = {
  ort: async (root, options) => (await import("./ort.js")).startOrtEngine({ ...options, base: new URL("vendor/onnxruntime-web/", root) }),
  litert: async (root, options) => (await import("./litert.js")).startLiteRtEngine({ ...options, base: new URL("vendor/litert/", root) }),
  compiled: async () => new (await import("./compiled.js")).CompiledEngine(),
};
/** The engines that have started here, or are starting. @type {Map<string, Promise<any>>} */
const engines = new Map();

/**
 * Return the one engine of its name in this page or worker, started when it is first asked for. A failed start is
 * forgotten, so that it can be tried again.
 *
 * @template {keyof Engines} Name
 * @param {Name} name
 * @param {StartOptions} [options] Used by the first call.
 * @returns {Promise<Engines[Name]>}
 * @throws {EdgeInferError} `backend_unavailable`: it cannot start here; `input_error`: there is no such engine.
 */
export async function sharedEngine(name, { root = ROOT, ...options } = {}) {
  if (!Object.hasOwn(STARTERS, name)) {
    throw new EdgeInferError(`Engine \`${name}\` is not known; choose from \`ort\`, \`litert\`, \`compiled\``, "input_error");
  }
  if (typeof WebAssembly === "undefined") {
    throw new EdgeInferError("This browser runs no WebAssembly here", "backend_unavailable", {
      hint: "a mode of high security may switch it off for this site; else take a browser of 2021 or later, or load(url, { fallback: SERVER })",
    });
  }
  const starting = engines.get(name) ?? STARTERS[name](new URL(root, globalThis.location?.href), options);
  engines.set(name, starting);
  return starting.catch((error) => {
    if (engines.get(name) === starting) engines.delete(name);
    throw error;
  });
}

/**
 * Start the engine for a variant, while its file is still on the way.
 *
 * @param {Variant} variant
 * @param {"auto" | "wasm" | "webgpu" | "webnn"} device
 * @param {EngineSettings} settings
 * @param {import("../fetch/download.js").OnProgress} [onProgress]
 * @returns {Promise<Opener>}
 * @throws {EdgeInferError} `backend_unavailable`: the engine cannot start here; `input_error`: it has no such device.
 */
export async function startEngine(variant, device, settings, onProgress) {
  if (!["auto", "wasm", "webgpu", "webnn"].includes(device)) {
    throw new EdgeInferError(`Device \`${device}\` is not known; choose from \`auto\`, \`wasm\`, \`webgpu\`, \`webnn\``, "input_error");
  }
  const options = { ...settings, onProgress };
  if (variant.format === "tflite" && device === "webgpu") {
    const { LiteRtGpuOpener } = await import("./litert-webgpu.js");
    return new LiteRtGpuOpener(new URL("vendor/litert/", settings.root), () => sharedEngine("litert", options), onProgress);
  }
  if (variant.format !== "onnx") {
    const engine = await sharedEngine(variant.format === "tflite" ? "litert" : "compiled", options);
    const who = variant.format === "tflite" ? "LiteRT.js runs" : "compiled models run";
    const asked = { webgpu: "WebGPU runs ONNX and TFLite", webnn: "WebNN runs ONNX" }[/** @type {string} */ (device)];
    const fallbacks = asked ? [`${device}: ${who} on wasm here; ${asked} variants`] : [];
    for (const said of fallbacks) console.warn(`edge-infer: ${said}`);
    const create = (/** @type {Uint8Array | StoredFile} */ model) => engine.createSession(/** @type {Uint8Array} */ (model));
    return { ...opener(engine, create, fallbacks), openInPlace: variant.format === "tflite" ? async (model) => create(model) : undefined };
  }
  if (device === "webgpu" || device === "webnn") {
    const { WebGpuOpener } = await import("./ort-webgpu.js");
    return WebGpuOpener.start(new URL("vendor/onnxruntime-web/", settings.root), () => sharedEngine("ort", options), onProgress, device);
  }
  const engine = await sharedEngine("ort", options);
  /** @type {NonNullable<Opener["openInPlace"]>} */
  const openInPlace = async (model, { options: own }) => engine.createSession(model, { config: own?.["ort-web"] });
  return { ...opener(engine, (model, { options: own }) => engine.createSession(model, { config: own?.["ort-web"] })), openInPlace };
}

/**
 * @param {{name: string, version: string, threads: number, threadsWhy: string, memoryBytes?: number}} engine
 * @param {(model: Uint8Array, variant: Variant) => AnySession} create
 * @param {string[]} [fallbacks]
 * @returns {Opener}
 */
function opener(engine, create, fallbacks = []) {
  const { name, version, threads, threadsWhy } = engine;
  return {
    open: async (model, variant) => create(model, variant),
    memory: (session) => session.memoryBytes ?? engine.memoryBytes ?? null,
    placement: () => ({ name, version, device: "wasm", threads, threadsWhy, fallbacks }),
  };
}
