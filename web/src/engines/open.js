/** Load a model with the engine that reads its format; an engine is imported and started when it is first needed. */

import { InferError } from "../errors.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../protocol.js").EngineSettings} EngineSettings */
/** @typedef {import("../bundle.js").Variant} Variant */

/**
 * @typedef {object} AnySession What the sessions of all engines have in common.
 * @property {readonly TensorSpec[]} inputs
 * @property {readonly TensorSpec[]} outputs
 * @property {(feeds: Record<string, unknown>, options: {outputs?: string[], spare?: ArrayBuffer[]}) =>
 *   Record<string, any> | Promise<Record<string, any>>} run
 * @property {() => void | Promise<void>} close
 */
/** @typedef {{name: string, version: string, device: string, threads: number, fallbacks: string[]}} Placement */
/**
 * @typedef {object} Opener
 * @property {(model: Uint8Array, variant: Variant) => Promise<AnySession>} open
 * @property {() => Placement} placement
 * @property {() => void} [abandon] Gives back what it holds, where nothing will be opened.
 */

/**
 * Start the engine for a variant, while its file is still on the way.
 *
 * @param {Variant} variant
 * @param {"auto" | "wasm" | "webgpu"} device
 * @param {EngineSettings} settings
 * @param {import("../download.js").OnProgress} [onProgress]
 * @returns {Promise<Opener>}
 * @throws {InferError} `backend_unavailable`: the engine cannot start here; `input_error`: it has no such device.
 */
export async function startEngine(variant, device, { root, threads }, onProgress) {
  if (!["auto", "wasm", "webgpu"].includes(device)) {
    throw new InferError(`Device \`${device}\` is not known; choose from \`auto\`, \`wasm\`, \`webgpu\``, "input_error");
  }
  const options = { threads, onProgress };
  if (variant.format === "tflite") {
    const { sharedLiteRtEngine } = await import("./litert.js");
    const engine = await sharedLiteRtEngine({ ...options, base: new URL("vendor/litert/", root) });
    const fallbacks = device === "webgpu" ? ["webgpu: LiteRT.js runs on wasm here; WebGPU runs ONNX variants"] : [];
    for (const said of fallbacks) console.warn(`edge-infer: ${said}`);
    return opener(engine, (model) => engine.createSession(model), fallbacks);
  }
  const base = new URL("vendor/onnxruntime-web/", root);
  const startWasm = async () => {
    const { sharedOrtEngine } = await import("./ort.js");
    return sharedOrtEngine({ ...options, base });
  };
  if (device === "webgpu") {
    const { WebGpuOpener } = await import("./ort-webgpu.js");
    return WebGpuOpener.start(base, startWasm, onProgress);
  }
  const engine = await startWasm();
  return opener(engine, (model, { options: own }) => engine.createSession(model, { config: own?.["ort-web"] }));
}

/**
 * @param {{name: string, version: string, threads: number}} engine
 * @param {(model: Uint8Array, variant: Variant) => AnySession} create
 * @param {string[]} [fallbacks]
 * @returns {Opener}
 */
function opener({ name, version, threads }, create, fallbacks = []) {
  return {
    open: async (model, variant) => create(model, variant),
    placement: () => ({ name, version, device: "wasm", threads, fallbacks }),
  };
}
