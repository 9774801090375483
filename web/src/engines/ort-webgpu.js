/**
 * WebGPU: onnxruntime-web's builds with the WebGPU execution provider, through its own JavaScript interface, for every
 * call may wait for the GPU. They are 17 and 27 MB and their CPU kernels are several times slower than those of the
 * plain build, so they are loaded only when `webgpu` is asked for: the smaller one where the browser can switch stacks
 * (JSPI), else the one that was rewritten to do so itself (Asyncify).
 *
 * A GPU may go away at any time: its driver is reset, the machine sleeps, memory runs out. A session keeps the model's
 * bytes, and goes on in the plain build where the GPU fails and the plain build does not: once, with a warning, and
 * told by its report.
 */

import { InferError } from "../errors.js";
import { arrayOver, checkInput, checkNames } from "../tensors.js";
import { MISSING_HINT } from "./wasm-file.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./open.js").Placement} Placement */
/** @typedef {import("./ort.js").OrtEngine} OrtEngine */
/** @typedef {import("./ort-session.js").OrtSession} OrtSession */
/** @typedef {{type: string, dims: readonly number[], data: any, dispose: () => void}} OrtTensor */
/** @typedef {{name: string, isTensor: boolean, type: DType, shape: readonly (number | string)[]}} OrtMetadata */
/**
 * @typedef {object} OrtJsSession onnxruntime-web's own session; only what is used here.
 * @property {readonly OrtMetadata[]} inputMetadata
 * @property {readonly OrtMetadata[]} outputMetadata
 * @property {(feeds: Record<string, OrtTensor>, fetches?: string[]) => Promise<Record<string, OrtTensor>>} run
 * @property {() => Promise<void>} release
 */
/**
 * @typedef {object} OrtJs onnxruntime-web's own interface; only what is used here.
 * @property {{wasm: Record<string, unknown>, logLevel: string, versions: {web?: string}}} env
 * @property {{create: (model: Uint8Array, options: object) => Promise<OrtJsSession>}} InferenceSession
 * @property {new (type: string, data: unknown, dims: readonly number[]) => OrtTensor} Tensor
 */
/** @typedef {{lost: Promise<{reason: string, message: string}>, destroy: () => void,
 *   features: ReadonlySet<string>}} GpuDevice */

const VERSION = "1.30.0";
// Files of onnxruntime-web, without their endings: the interface, and the wasm module that it drives.
const JSPI = { script: "ort.jspi.min.mjs", module: "ort-wasm-simd-threaded.jspi", bytes: 16_758_545 };
const ASYNCIFY = { script: "ort.webgpu.min.mjs", module: "ort-wasm-simd-threaded.asyncify", bytes: 26_781_914 };

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
    const build = "Suspending" in WebAssembly ? JSPI : ASYNCIFY;
    const script = new URL(build.script, base);
    /** @type {OrtJs} */
    let ort;
    try {
      ort = await import(script.href);
    } catch (cause) {
      throw new InferError(`The engine's file ${script} cannot be loaded`, "backend_unavailable", { hint: MISSING_HINT, cause });
    }
    if (ort.env.versions.web !== VERSION) {
      throw new InferError(`${script} is of version ${ort.env.versions.web}, expected ${VERSION}`, "backend_unavailable", {
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
 * @returns {Promise<GpuDevice>}
 * @throws {InferError} `backend_unavailable`, with the reason.
 */
async function requestDevice() {
  const { gpu } = /** @type {any} */ (navigator);
  if (!gpu) {
    throw new InferError("this browser has no WebGPU, or the page is not served by https or from localhost", "backend_unavailable");
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new InferError("the browser offers no GPU adapter", "backend_unavailable");
  // The limits that onnxruntime asks for where it makes the device itself, as far as the adapter has them.
  const limits = ["maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize"];
  limits.push("maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupsPerDimension");
  const requiredLimits = Object.fromEntries(limits.map((name) => [name, adapter.limits[name]]));
  const features = ["shader-f16", "subgroups", "timestamp-query"].filter((name) => adapter.features.has(name));
  return adapter.requestDevice({ requiredLimits, requiredFeatures: features });
}

/**
 * @param {GpuDevice} gpu
 * @param {import("../bundle.js").Variant} variant
 * @throws {InferError} `unsupported_model`: the variant is of float16, and the GPU computes none.
 */
function checkHalf(gpu, variant) {
  if (variant.precision !== "fp16" || gpu.features.has("shader-f16")) return;
  throw new InferError(`this GPU computes no float16, which variant \`${variant.id}\` is of`, "unsupported_model", {
    hint: "choose an fp32 variant, or the device `wasm`",
  });
}

/** @returns {Promise<string[]>} The order in which variants are taken for the GPU of this page, by precision. */
export async function preferredPrecisions() {
  const adapter = await /** @type {any} */ (navigator).gpu?.requestAdapter();
  const others = ["fp32", "mixed", "int8", "int4", ""];
  return adapter?.features.has("shader-f16") ? ["fp16", ...others] : [...others, "fp16"];
}

/** Opens sessions on WebGPU, or in the plain build where that is not to be had. */
export class WebGpuOpener {
  /**
   * @param {() => Promise<OrtEngine>} startWasm Starts the plain build.
   * @param {OrtJs | undefined} ort
   * @param {GpuDevice | undefined} gpu
   * @param {string[]} fallbacks
   */
  constructor(startWasm, ort, gpu, fallbacks) {
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
   * @param {import("../download.js").OnProgress} [onProgress]
   * @returns {Promise<WebGpuOpener>}
   */
  static async start(base, startWasm, onProgress) {
    try {
      const gpu = await requestDevice();
      const ort = await sharedInterface(base);
      const { module, bytes } = "Suspending" in WebAssembly ? JSPI : ASYNCIFY;
      onProgress?.({ phase: "engine", file: `${module}.wasm`, loaded: 0, total: bytes });
      return new WebGpuOpener(startWasm, ort, gpu, []);
    } catch (error) {
      return new WebGpuOpener(startWasm, undefined, undefined, [warned(error)]);
    }
  }

  /**
   * Load a model on the GPU, or not at all.
   *
   * @param {URL} base
   * @param {Uint8Array} model
   * @param {import("../bundle.js").Variant} variant
   * @returns {Promise<WebGpuSession>} One that fails where the GPU fails.
   * @throws {InferError} `backend_unavailable` or `unsupported_model`, with the reason.
   */
  static async openOnly(base, model, variant) {
    const gpu = await requestDevice();
    try {
      checkHalf(gpu, variant);
      const ort = await sharedInterface(base);
      return new WebGpuSession(ort, await createSession(ort, model, gpu, variant.options?.["ort-web"]), gpu, null, []);
    } catch (error) {
      gpu.destroy();
      if (error instanceof InferError) throw error;
      throw new InferError(`The GPU cannot load the model: ${firstLine(error)}`, "unsupported_model", { cause: error });
    }
  }

  /**
   * @param {Uint8Array} model
   * @param {import("../bundle.js").Variant} variant
   * @returns {Promise<import("./open.js").AnySession>}
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
        checkHalf(gpu, variant);
        const own = await createSession(ort, model, gpu, config);
        this.session = new WebGpuSession(ort, own, gpu, openWasm, this.fallbacks);
        return this.session;
      } catch (error) {
        this.fallbacks.push(warned(error));
        gpu.destroy();
      }
    }
    return openWasm();
  }

  /** @returns {Placement} */
  placement() {
    const device = this.session && !this.session.wasm ? "webgpu" : "wasm";
    const threads = device === "webgpu" ? 0 : (this.wasm?.threads ?? 1);
    return { name: "ort-web", version: VERSION, device, threads, fallbacks: [...this.fallbacks] };
  }
}

/**
 * @param {OrtJs} ort
 * @param {Uint8Array} model
 * @param {GpuDevice} device
 * @param {Record<string, string> | undefined} config
 * @returns {Promise<OrtJsSession>}
 */
async function createSession(ort, model, device, config) {
  const session = await ort.InferenceSession.create(model, {
    executionProviders: [{ name: "webgpu", device }],
    logSeverityLevel: 4,
    extra: config ? { session: nested(config) } : undefined,
  });
  for (const { name, isTensor } of [...session.inputMetadata, ...session.outputMetadata]) {
    if (isTensor) continue;
    await session.release();
    throw new InferError(`\`${name}\` is a sequence, a map or optional, and only tensors can be passed`, "unsupported_model", {
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

/** A model on the GPU, until that fails. */
export class WebGpuSession {
  /**
   * @param {OrtJs} ort
   * @param {OrtJsSession} own
   * @param {GpuDevice} gpu
   * @param {(() => Promise<OrtSession>) | null} openWasm Where to go on; null where the caller does that.
   * @param {string[]} fallbacks
   */
  constructor(ort, own, gpu, openWasm, fallbacks) {
    this.ort = ort;
    this.own = own;
    this.gpu = gpu;
    this.openWasm = openWasm;
    this.fallbacks = fallbacks;
    /** @type {readonly TensorSpec[]} */
    this.inputs = own.inputMetadata.map(specOf);
    /** @type {readonly TensorSpec[]} */
    this.outputs = own.outputMetadata.map(specOf);
    /** What goes on where the GPU failed. @type {OrtSession | undefined} */
    this.wasm = undefined;
    this.isClosed = false;
    /** @type {((error: Error) => void) | undefined} */
    this.interrupt = undefined;
    /** Why the GPU is gone. @type {InferError | undefined} */
    this.lost = undefined;
    gpu.lost.then(({ reason, message }) => {
      this.lost = new InferError(`the GPU was lost (${reason}): ${message}`, "execution_error");
      this.interrupt?.(this.lost);
    });
  }

  /** @returns {string} The device that the next run uses. */
  get device() {
    return this.wasm ? "wasm" : "webgpu";
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} feeds As `OrtSession.run` takes them.
   * @param {{outputs?: string[]}} [options]
   * @returns {Promise<Record<string, Tensor>>}
   * @throws {InferError} `input_error` where a value does not fit, `execution_error` where the plain build fails too.
   */
  async run(feeds, { outputs = this.outputs.map((spec) => spec.name) } = {}) {
    if (this.isClosed) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
    if (this.wasm) return /** @type {Record<string, Tensor>} */ (this.wasm.run(feeds, { outputs }));
    checkNames("Input", Object.keys(feeds), this.inputs);
    checkNames("Output", outputs, this.outputs);
    const tensors = Object.fromEntries(this.inputs.map((spec) => [spec.name, this.tensorOf(spec, feeds[spec.name])]));
    try {
      return await this.runOnGpu(tensors, outputs);
    } catch (error) {
      return this.fallBack(error, feeds, outputs);
    }
  }

  /**
   * @param {Record<string, OrtTensor>} tensors
   * @param {string[]} outputs
   * @returns {Promise<Record<string, Tensor>>}
   */
  async runOnGpu(tensors, outputs) {
    if (this.lost) throw this.lost;
    // A run whose GPU went away may never end.
    /** @type {Promise<never>} */
    const interrupted = new Promise((_, reject) => (this.interrupt = reject));
    const results = await Promise.race([this.own.run(tensors, outputs), interrupted]);
    this.interrupt = undefined;
    // What was read from a GPU that went away meanwhile is not to be trusted; the news comes after the data.
    await Promise.resolve();
    if (this.lost) throw this.lost;
    return Object.fromEntries(outputs.map((name) => [name, this.resultOf(name, results[name])]));
  }

  /**
   * Go on in the plain build, if that can run what the GPU could not.
   *
   * @param {unknown} error
   * @param {Record<string, unknown>} feeds
   * @param {string[]} outputs
   * @returns {Promise<Record<string, Tensor>>}
   */
  async fallBack(error, feeds, outputs) {
    if (!this.openWasm) throw new InferError(`The GPU failed: ${firstLine(error)}`, "execution_error", { cause: error });
    const wasm = await this.openWasm();
    try {
      const results = /** @type {Record<string, Tensor>} */ (wasm.run(feeds, { outputs }));
      this.wasm = wasm;
      this.fallbacks.push(warned(error));
      return results;
    } finally {
      if (!this.wasm) wasm.close(); // the model fails on both: it is not the GPU's fault
      else if (!this.lost) await this.releaseGpu();
    }
  }

  /**
   * @param {TensorSpec} spec
   * @param {unknown} value
   * @returns {OrtTensor}
   */
  tensorOf(spec, value) {
    if (value === undefined) {
      throw new InferError(`Input \`${spec.name}\` is missing`, "input_error", { details: { input: spec.name } });
    }
    const { bytes, strings, shape } = checkInput(spec, value);
    const data = strings ?? arrayOver(spec.dtype, (/** @type {Uint8Array} */ (bytes)).slice());
    return new this.ort.Tensor(spec.dtype, data, shape);
  }

  /**
   * @param {string} name
   * @param {OrtTensor} tensor
   * @returns {Tensor}
   */
  resultOf(name, { data, dims }) {
    const spec = /** @type {TensorSpec} */ (this.outputs.find((one) => one.name === name));
    return { data, dtype: spec.dtype, shape: [...dims] };
  }

  async releaseGpu() {
    try {
      await this.own.release();
    } finally {
      this.gpu.destroy();
    }
  }

  /** Give back the model's memory, the GPU's too. A second call does nothing. */
  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    if (this.wasm) this.wasm.close();
    else if (!this.lost) await this.releaseGpu();
  }
}

/** @param {OrtMetadata} metadata @returns {TensorSpec} */
function specOf({ name, type, shape }) {
  return { name, dtype: type, shape: shape.map((dim, axis) => (dim === "" || dim === -1 ? `${name}_${axis}` : dim)) };
}

/**
 * Say loudly that WebGPU is not used.
 *
 * @param {unknown} error
 * @returns {string} What the report says.
 */
function warned(error) {
  const said = `webgpu: ${firstLine(error)}`;
  console.warn(`edge-infer: ${said}; going on with wasm`);
  return said;
}

/** @param {unknown} error */
function firstLine(error) {
  return (error instanceof Error ? error.message : String(error)).split("\n")[0];
}
