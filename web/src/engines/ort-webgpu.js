/**
 * Open models with onnxruntime-web's WebGPU builds, through its own JavaScript interface, since a call may wait for the GPU.
 * They are 17 and 27 MB and their CPU kernels are several times slower than those of the plain build, so they are loaded
 * only when `webgpu` is asked for: the smaller one where the browser can switch stacks (JSPI), else the one that was
 * rewritten to do so itself (Asyncify).
 */

import { EdgeInferError } from "../errors.js";
import { weightsApart } from "./onnx-weights.js";
import { MISSING_HINT, importScript } from "./wasm-file.js";
import { WebGpuSession, firstLine, warned } from "./ort-webgpu-session.js";

/** @typedef {import("./ort.js").OrtEngine} OrtEngine */
/** @typedef {import("./ort-webgpu-session.js").OrtJs} OrtJs */
/** @typedef {import("./ort-webgpu-session.js").OrtJsSession} OrtJsSession */
/** @typedef {import("./ort-webgpu-session.js").GpuDevice} GpuDevice */
/** @typedef {import("./ort-webgpu-session.js").Accelerator} Accelerator */

const VERSION = "1.30.0";
// Weights of so many bytes are read from the file where they are wanted.
const APART_BYTES = 2 ** 20;
// Files of onnxruntime-web, without their endings: the interface, and the wasm module that it drives.
const JSPI = { script: "ort.jspi.min.mjs", module: "ort-wasm-simd-threaded.jspi", bytes: 16_758_545 };
const ASYNCIFY = { script: "ort.webgpu.min.mjs", module: "ort-wasm-simd-threaded.asyncify", bytes: 26_781_914 };

/** @returns {typeof JSPI} The smaller one where the browser can switch stacks. */
export function buildOfThisBrowser() {
  return "Suspending" in WebAssembly ? JSPI : ASYNCIFY;
}

/** @type {Promise<OrtJs> | undefined} */
let shared;

/**
 * Import onnxruntime-web's interface, and point it to its files.
 *
 * @param {URL} base
 * @returns {Promise<OrtJs>}
 */
function sharedInterface(base) {
  shared ??= (async () => {
    const build = buildOfThisBrowser();
    const script = new URL(build.script, base);
    /** @type {OrtJs} */
    const ort = await importScript(script, VERSION);
    if (ort.env.versions.web !== VERSION) {
      throw new EdgeInferError(`${script} is of version ${ort.env.versions.web}, expected ${VERSION}`, "backend_unavailable", {
        hint: MISSING_HINT,
      });
    }
    const [mjs, wasm] = ["mjs", "wasm"].map((ending) => new URL(`${build.module}.${ending}`, base).href);
    Object.assign(ort.env.wasm, { numThreads: 1, proxy: false, wasmPaths: { mjs, wasm } });
    ort.env.logLevel = "error";
    return ort;
  })().catch((error) => {
    shared = undefined;
    throw error;
  });
  return shared;
}

/**
 * Ask for a GPU.
 *
 * @param {string[]} [more] Further limits that are asked for.
 * @returns {Promise<GpuDevice>}
 * @throws {EdgeInferError} `backend_unavailable`, with the reason.
 */
export async function requestDevice(more = []) {
  const { gpu } = /** @type {any} */ (navigator);
  if (!gpu) {
    throw new EdgeInferError("this browser has no WebGPU, or the page is not served by https or from localhost", "backend_unavailable");
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new EdgeInferError("the browser offers no GPU adapter", "backend_unavailable");
  // The limits that onnxruntime asks for where it makes the device itself, as far as the adapter has them.
  const limits = ["maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize"];
  limits.push("maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupsPerDimension", ...more);
  const requiredLimits = Object.fromEntries(limits.map((name) => [name, adapter.limits[name]]));
  const features = ["shader-f16", "subgroups", "timestamp-query"].filter((name) => adapter.features.has(name));
  return adapter.requestDevice({ requiredLimits, requiredFeatures: features });
}

/**
 * @param {GpuDevice} gpu
 * @param {import("../bundle/manifest.js").Variant} variant
 * @throws {EdgeInferError} `unsupported_model`: the variant is of float16, and the GPU computes none.
 */
function checkHalf(gpu, variant) {
  if (variant.precision !== "fp16" || gpu.features.has("shader-f16")) return;
  throw new EdgeInferError(`this GPU computes no float16, which variant \`${variant.id}\` is of`, "unsupported_model", {
    hint: "choose an fp32 variant, or the device `wasm`",
  });
}

/** @returns {Promise<string[]>} The order in which variants are taken for the GPU of this page, by precision. */
export async function preferredPrecisions() {
  const adapter = await /** @type {any} */ (navigator).gpu?.requestAdapter();
  const others = ["fp32", "mixed", "int8", "int4", ""];
  return adapter?.features.has("shader-f16") ? ["fp16", ...others] : [...others, "fp16"];
}

/**
 * Ask for a context of WebNN, which runs models on what the system has: an NPU, a GPU or its own kernels.
 *
 * @returns {Promise<GpuDevice & {context: unknown}>}
 * @throws {EdgeInferError} `backend_unavailable`, with the reason.
 */
async function requestContext() {
  const { ml } = /** @type {any} */ (navigator);
  if (!ml) {
    throw new EdgeInferError("this browser has no WebNN, or the page is not served by https or from localhost", "backend_unavailable");
  }
  const context = await ml.createContext({ powerPreference: "high-performance" }).catch((/** @type {unknown} */ cause) => {
    throw new EdgeInferError(`the browser gives no context: ${firstLine(cause)}`, "backend_unavailable", { cause });
  });
  /** @type {Promise<{message?: string}>} */
  const gone = context.lost ?? new Promise(() => {});
  const lost = gone.then((info) => ({ reason: "context", message: info?.message ?? "" }));
  return { context, lost, destroy: () => context.destroy?.(), features: new Set() };
}

/** Opens sessions on WebGPU or WebNN, or in the plain build where that is not to be had. */
export class WebGpuOpener {
  /**
   * @param {() => Promise<OrtEngine>} startWasm Starts the plain build.
   * @param {OrtJs | undefined} ort
   * @param {GpuDevice | undefined} gpu
   * @param {string[]} fallbacks
   * @param {Accelerator} [kind]
   */
  constructor(startWasm, ort, gpu, fallbacks, kind = "webgpu") {
    this.kind = kind;
    this.startWasm = startWasm;
    this.ort = ort;
    this.gpu = gpu;
    this.fallbacks = fallbacks;
    /** @type {OrtEngine | undefined} */
    this.wasm = undefined;
    /** @type {WebGpuSession | undefined} */
    this.session = undefined;
  }

  /**
   * @param {URL} base The folder of onnxruntime-web's files.
   * @param {() => Promise<OrtEngine>} startWasm
   * @param {import("../fetch/download.js").OnProgress} [onProgress]
   * @param {Accelerator} [kind]
   * @returns {Promise<WebGpuOpener>}
   */
  static async start(base, startWasm, onProgress, kind = "webgpu") {
    /** @type {GpuDevice | undefined} */
    let gpu;
    try {
      gpu = await (kind === "webnn" ? requestContext() : requestDevice());
      const ort = await sharedInterface(base);
      const { module, bytes } = buildOfThisBrowser();
      onProgress?.({ phase: "engine", file: `${module}.wasm`, loaded: 0, total: bytes });
      return new WebGpuOpener(startWasm, ort, gpu, [], kind);
    } catch (error) {
      gpu?.destroy();
      return new WebGpuOpener(startWasm, undefined, undefined, [warned(error, kind)], kind);
    }
  }

  abandon() {
    this.gpu?.destroy();
  }

  /**
   * Load a model on the GPU, or not at all.
   *
   * @param {URL} base
   * @param {Uint8Array} model
   * @param {import("../bundle/manifest.js").Variant} variant
   * @returns {Promise<WebGpuSession>} One that fails where the GPU fails.
   * @throws {EdgeInferError} `backend_unavailable` or `unsupported_model`, with the reason.
   */
  static async openOnly(base, model, variant) {
    const gpu = await requestDevice();
    try {
      checkHalf(gpu, variant);
      const ort = await sharedInterface(base);
      return new WebGpuSession(ort, await createSession(ort, model, gpu, variant.options?.["ort-web"]), gpu, null, []);
    } catch (error) {
      gpu.destroy();
      if (error instanceof EdgeInferError) throw error;
      throw new EdgeInferError(`The GPU cannot load the model: ${firstLine(error)}`, "unsupported_model", { cause: error });
    }
  }

  /**
   * @param {Uint8Array} model
   * @param {import("../bundle/manifest.js").Variant} variant
   * @returns {Promise<WebGpuSession | import("./ort-session.js").OrtSession>}
   */
  async open(model, variant) {
    const config = variant.options?.["ort-web"];
    const openWasm = async () => {
      this.wasm = await this.startWasm();
      return this.wasm.createSession(model, { config });
    };
    const { ort, gpu } = this;
    if (ort && gpu) {
      try {
        if (this.kind === "webgpu") checkHalf(gpu, variant);
        const own = await createSession(ort, model, gpu, config);
        this.session = new WebGpuSession(ort, own, gpu, openWasm, this.fallbacks, this.kind);
        return this.session;
      } catch (error) {
        this.fallbacks.push(warned(error, this.kind));
        gpu.destroy();
      }
    }
    return openWasm();
  }

  placement() {
    const device = this.session && !this.session.wasm ? this.kind : "wasm";
    const threads = device !== "wasm" ? 0 : (this.wasm?.threads ?? 1);
    const threadsWhy = device === "webgpu" ? "the GPU computes" : device === "webnn" ? "the system computes" : (this.wasm?.threadsWhy ?? "");
    return { name: "ort-web", version: VERSION, device, threads, threadsWhy, fallbacks: [...this.fallbacks] };
  }
}

/**
 * @param {OrtJs} ort
 * @param {Uint8Array} model
 * @param {GpuDevice & {context?: unknown}} device
 * @param {Record<string, string> | undefined} config
 * @returns {Promise<OrtJsSession>}
 */
async function createSession(ort, model, device, config) {
  const { context } = device;
  // What WebNN leaves would run on this build's CPU kernels, which are slower than the plain build's: all of a model, or none.
  const settings = context ? { ...config, "session.disable_cpu_ep_fallback": "1" } : config;
  const options = {
    executionProviders: [context ? { name: "webnn", context } : { name: "webgpu", device }],
    logSeverityLevel: 4,
    extra: settings ? { session: nested(settings) } : undefined,
  };
  const create = (/** @type {Uint8Array} */ file, more = {}) => ort.InferenceSession.create(file, { ...options, ...more });
  // Else the engine holds a copy of the whole file in its own memory, which never shrinks.
  const apart = context ? undefined : weightsApart(model, APART_BYTES);
  const whole = () => create(model); // it wants a value of such weights before it reads them, or the model is wrong
  const session = apart ? await create(apart.graph, { externalData: [{ path: apart.name, data: model }] }).catch(whole) : await whole();
  for (const { name, isTensor } of [...session.inputMetadata, ...session.outputMetadata]) {
    if (isTensor) continue;
    await session.release();
    throw new EdgeInferError(`\`${name}\` is a sequence, a map or optional, and only tensors can be passed`, "unsupported_model", {
      hint: "convert the model so that its inputs and outputs are plain tensors",
    });
  }
  return session;
}

/**
 * Write `session.a.b` entries as the nested object that onnxruntime-web's `extra` option takes.
 *
 * @param {Record<string, string>} config
 * @returns {object}
 */
function nested(config) {
  /** @type {any} */
  const root = {};
  for (const [key, value] of Object.entries(config)) {
    const parts = key.replace(/^session\./, "").split(".");
    let at = root;
    for (const part of parts.slice(0, -1)) at = at[part] ??= {};
    at[/** @type {string} */ (parts.at(-1))] = value;
  }
  return root;
}
