/**
 * A model on the GPU, through onnxruntime-web's own JavaScript interface, which falls back to the plain wasm build.
 *
 * A GPU may be lost at any time: its driver is reset, the machine sleeps, memory runs out. Where the GPU fails and the plain
 * build runs the model, the session stays on the plain build, with one warning and an entry in its report.
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, checkInputs, checkNames } from "../tensors.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
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
/** @typedef {"webgpu" | "webnn"} Accelerator */

/** A model on the GPU, until that fails. */
export class WebGpuSession {
  /**
   * @param {Pick<OrtJs, "Tensor">} ort
   * @param {OrtJsSession} own
   * @param {GpuDevice} gpu
   * @param {(() => Promise<OrtSession>) | null} openWasm Where to go on; null where the caller does that.
   * @param {string[]} fallbacks
   * @param {Accelerator} [kind]
   */
  constructor(ort, own, gpu, openWasm, fallbacks, kind = "webgpu") {
    this.kind = kind;
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
    /** The last fall back: runs that fail beside one another go on one after the other. @type {Promise<unknown>} */
    this.falling = Promise.resolve();
    /** @type {((error: Error) => void) | undefined} */
    this.interrupt = undefined;
    /** Why the GPU is gone. @type {EdgeInferError | undefined} */
    this.lost = undefined;
    gpu.lost.then(({ reason, message }) => {
      this.lost = new EdgeInferError(`${kind === "webgpu" ? "the GPU" : "its context"} was lost (${reason}): ${message}`, "execution_error");
      this.interrupt?.(this.lost);
    });
  }

  /** @returns {string} The device that the next run uses. */
  get device() {
    return this.wasm ? "wasm" : this.kind;
  }

  /**
   * Run the model once.
   *
   * @param {Record<string, unknown>} feeds As `OrtSession.run` takes them.
   * @param {{outputs?: string[]}} [options]
   * @returns {Promise<Record<string, Tensor>>}
   * @throws {EdgeInferError} `input_error` where a value does not fit, `execution_error` where the plain build fails too.
   */
  async run(feeds, { outputs = this.outputs.map((spec) => spec.name) } = {}) {
    if (this.isClosed) throw closed();
    if (this.wasm) return /** @type {Record<string, Tensor>} */ (this.wasm.run(feeds, { outputs }));
    checkNames("Output", outputs, this.outputs);
    const values = /** @type {import("../tensors.js").Checked[]} */ (checkInputs(this.inputs, feeds));
    const tensors = Object.fromEntries(this.inputs.map((spec, i) => [spec.name, this.tensorOf(spec, values[i])]));
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
  fallBack(error, feeds, outputs) {
    const results = this.falling.then(() => this.runOnWasm(error, feeds, outputs));
    this.falling = results.catch(() => {});
    return results;
  }

  /**
   * @param {unknown} error
   * @param {Record<string, unknown>} feeds
   * @param {string[]} outputs
   * @returns {Promise<Record<string, Tensor>>}
   */
  async runOnWasm(error, feeds, outputs) {
    if (this.isClosed) throw closed();
    if (this.wasm) return /** @type {Record<string, Tensor>} */ (this.wasm.run(feeds, { outputs }));
    if (!this.openWasm) throw new EdgeInferError(`The GPU failed: ${firstLine(error)}`, "execution_error", { cause: error });
    const wasm = await this.openWasm();
    try {
      if (this.isClosed) throw closed(); // while it was opened
      const results = /** @type {Record<string, Tensor>} */ (wasm.run(feeds, { outputs }));
      this.wasm = wasm;
      this.fallbacks.push(warned(error, this.kind));
      return results;
    } finally {
      if (!this.wasm) wasm.close(); // nobody is there for it, or the model fails on both: it is not the GPU's fault
      else if (!this.lost) await this.releaseGpu();
    }
  }

  /**
   * @param {TensorSpec} spec
   * @param {import("../tensors.js").Checked} checked
   * @returns {OrtTensor}
   */
  tensorOf(spec, { bytes, strings, shape }) {
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

/** @returns {EdgeInferError} */
function closed() {
  return new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
}

/** @param {OrtMetadata} metadata @returns {TensorSpec} */
function specOf({ name, type, shape }) {
  return { name, dtype: type, shape: shape.map((dim, axis) => (dim === "" || dim === -1 ? `${name}_${axis}` : dim)) };
}

/**
 * Say loudly that the accelerator is not used.
 *
 * @param {unknown} error
 * @param {Accelerator} [kind]
 * @returns {string} What the report says.
 */
export function warned(error, kind = "webgpu") {
  const said = `${kind}: ${firstLine(error)}`;
  console.warn(`edge-infer: ${said}; going on with wasm`);
  return said;
}

/** @param {unknown} error @returns {string} The first line of what it says. */
export function firstLine(error) {
  return (error instanceof Error ? error.message : String(error)).split("\n")[0];
}
