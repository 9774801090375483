/**
 * Run `.tflite` files on WebGPU, by the build of LiteRT.js that can switch stacks (JSPI) while it waits for the GPU.
 *
 * It is 9.6 MB, and fetched only when `webgpu` is asked for. All of a model runs on the GPU, or none: what is left would run
 * on that build's one thread. The calls are those of `@litertjs/core` 2.5.3 (`dist/index.js`, Apache-2.0).
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, nbytesOf } from "../tensors.js";
import { LiteRtHeap, listOf } from "./litert-heap.js";
import { LITERT_VERSION, startBuild } from "./litert.js";
import { specOf } from "./litert-session.js";
import { requestDevice } from "./ort-webgpu.js";
import { WebGpuSession, warned } from "./ort-webgpu-session.js";
import { TfliteFile, endNames } from "./tflite-file.js";

/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("./ort-webgpu-session.js").OrtTensor} OrtTensor */
/** @typedef {import("./litert-heap.js").CppBuffer} CppBuffer */
/** @typedef {import("./litert-heap.js").CppModel} CppModel */

const BUILD = "litert_wasm_jspi_internal";
/** How many bytes its wasm file has. */
export const LITERT_GPU_BYTES = 9_618_046;

/** @returns {boolean} Whether this browser has what the build needs. */
export function canSwitchStacks() {
  return "Suspending" in WebAssembly;
}

/**
 * What the build adds; the GPU's own objects have the names of WebGPU.
 *
 * @typedef {Awaited<ReturnType<typeof startBuild>>["module"] & {
 *   WebGPU: {importJsBuffer: (buffer: any) => number, getJsObject: (pointer: number) => any},
 *   wgpuBufferRelease: (pointer: number) => void,
 *   LiteRtTensorBuffer: {createFromWebGpuBuffer: (environment: unknown, type: unknown, place: unknown, buffer: number, bytes: number) => CppBuffer},
 *   LiteRtTensorBufferType: {WEB_GPU_BUFFER_PACKED: unknown}}} GpuModule
 */
/** @typedef {{delete: () => void, isFullyAccelerated: () => boolean, run: (signature: number, inputs: CppBuffer[]) => Promise<GpuBuffer[]>}} GpuCompiled */
/** @typedef {CppBuffer & {bufferType: () => unknown, getWebGpuBuffer: () => number, offset: () => number}} GpuBuffer */
/** @typedef {{key: string, compiled: GpuCompiled, model: CppModel, pointer: number}} Program */

/** Opens sessions on the GPU, or in the usual build where that is not to be had. */
export class LiteRtGpuOpener {
  /**
   * @param {URL} base The folder of LiteRT.js's files.
   * @param {() => Promise<import("./litert.js").LiteRtEngine>} startWasm Starts the usual build.
   * @param {import("../fetch/download.js").OnProgress} [onProgress]
   */
  constructor(base, startWasm, onProgress) {
    this.base = base;
    this.startWasm = startWasm;
    this.onProgress = onProgress;
    /** @type {string[]} */
    this.fallbacks = [];
    /** @type {import("./litert.js").LiteRtEngine | undefined} */
    this.wasm = undefined;
    /** @type {WebGpuSession | undefined} */
    this.session = undefined;
  }

  /**
   * @param {Uint8Array} model
   * @returns {Promise<WebGpuSession | import("./litert-session.js").LiteRtSession>}
   */
  async open(model) {
    const openWasm = async () => {
      this.wasm = await this.startWasm();
      return this.wasm.createSession(model);
    };
    /** @type {import("./ort-webgpu-session.js").GpuDevice | undefined} */
    let gpu;
    try {
      if (!canSwitchStacks()) throw new EdgeInferError("this browser cannot switch stacks (JSPI), which LiteRT.js needs there", "backend_unavailable");
      gpu = await requestDevice(["maxStorageBuffersPerShaderStage", "maxTextureDimension2D"]);
      const { module, log } = await startBuild(this.base, BUILD, LITERT_GPU_BYTES, this.onProgress);
      const own = await GpuModel.load(new LiteRtHeap(module, log, 0, gpu), gpu, model);
      this.session = new WebGpuSession({ Tensor: HostTensor }, own, gpu, /** @type {any} */ (openWasm), this.fallbacks);
      return this.session;
    } catch (error) {
      this.fallbacks.push(warned(error));
      gpu?.destroy();
      return openWasm();
    }
  }

  placement() {
    const device = this.session && !this.session.wasm ? "webgpu" : "wasm";
    const threads = device === "webgpu" ? 0 : (this.wasm?.threads ?? 1);
    const threadsWhy = device === "webgpu" ? "the GPU computes" : (this.wasm?.threadsWhy ?? "");
    return { name: "litert-web", version: LITERT_VERSION, device, threads, threadsWhy, fallbacks: [...this.fallbacks] };
  }
}

/** A tensor of the page, in the form that `WebGpuSession` hands on. */
class HostTensor {
  /**
   * @param {string} type
   * @param {any} data
   * @param {readonly number[]} dims
   */
  constructor(type, data, dims) {
    this.type = type;
    this.data = data;
    this.dims = dims;
  }

  dispose() {}
}

/** A model on the GPU: what `WebGpuSession` takes for ONNX Runtime's session. */
class GpuModel {
  /**
   * @param {LiteRtHeap} heap
   * @param {any} gpu
   * @param {Uint8Array} model
   */
  constructor(heap, gpu, model) {
    this.heap = heap;
    this.gpu = gpu;
    this.module = /** @type {GpuModule} */ (/** @type {unknown} */ (heap.module));
    this.file = new TfliteFile(model.slice());
    /** @type {Program | undefined} */
    this.program = undefined;
    /** The run that is under way: its build is not entered twice at once. @type {Promise<unknown>} */
    this.running = Promise.resolve();
    /** @type {TensorSpec[]} */
    this.inputs = [];
    /** @type {TensorSpec[]} */
    this.outputs = [];
  }

  /**
   * @param {LiteRtHeap} heap
   * @param {any} gpu
   * @param {Uint8Array} model
   */
  static async load(heap, gpu, model) {
    const made = new GpuModel(heap, gpu, model);
    if (made.file.hasState) throw new EdgeInferError("the model keeps hidden state, which stays on wasm", "unsupported_model");
    const { pointer, loaded } = made.loadFile(model);
    const signature = loaded.getSignature(0);
    const names = [endNames(listOf(signature.inputNames()), "input"), endNames(listOf(signature.outputNames()), "output")];
    signature.delete();
    made.inputs = names[0].map((name, i) => specOf(heap, { model: loaded }, "input", name, i));
    made.outputs = names[1].map((name, i) => specOf(heap, { model: loaded }, "output", name, i));
    loaded.delete();
    heap.free(pointer);
    // Compiled here already where it can be, so that what the GPU lacks is known before the first run.
    const shapes = made.inputs.map(({ shape }) => shape.map((dim) => (typeof dim === "number" ? dim : 1)));
    await made.programFor(shapes);
    return made;
  }

  get inputMetadata() {
    return this.inputs.map(metadataOf);
  }

  get outputMetadata() {
    return this.outputs.map(metadataOf);
  }

  /** @param {Uint8Array} model */
  loadFile(model) {
    const { heap } = this;
    const pointer = heap.alloc(model.byteLength);
    heap.module.HEAPU8.set(model, pointer);
    const load = () => heap.module.loadModel(heap.environment, pointer, model.byteLength);
    return { pointer, loaded: heap.guard(load, "to load the model", "unsupported_model") };
  }

  /** @param {number[][]} shapes @returns {Promise<Program>} */
  async programFor(shapes) {
    const key = JSON.stringify(shapes);
    if (this.program?.key === key) return this.program;
    this.drop();
    const isFixed = this.inputs.every(({ shape }) => shape.every((dim) => typeof dim === "number"));
    const named = Object.fromEntries(this.inputs.map(({ name }, i) => [name, shapes[i]]));
    const { pointer, loaded } = this.loadFile(isFixed ? this.file.bytes : this.file.withShapes(named));
    const { environment, module } = this.heap;
    const options = { environment: { liteRtEnvironment: environment, webGpuDevice: this.gpu }, accelerator: "webgpu" };
    const settings = { ...options, cpuOptions: { numThreads: 1 }, gpuOptions: { precision: "fp32" }, webNNOptions: {} };
    const compiled = /** @type {GpuCompiled} */ (/** @type {unknown} */ (await module.compileModel(environment, loaded, settings)));
    this.program = { key, compiled, model: loaded, pointer };
    if (!compiled.isFullyAccelerated()) {
      this.drop();
      throw new EdgeInferError("LiteRT.js runs this model there in part only", "unsupported_model");
    }
    return this.program;
  }

  /**
   * @param {Record<string, OrtTensor>} feeds
   * @returns {Promise<Record<string, OrtTensor>>}
   */
  run(feeds) {
    const result = this.running.then(() => this.runAlone(feeds));
    this.running = result.catch(() => {});
    return result;
  }

  /**
   * @param {Record<string, OrtTensor>} feeds
   * @returns {Promise<Record<string, OrtTensor>>}
   */
  async runAlone(feeds) {
    const given = this.inputs.map(({ name }) => feeds[name]);
    const program = await this.programFor(given.map(({ dims }) => [...dims]));
    const places = given.map(({ data }, i) => this.upload(program.model, i, data));
    /** @type {GpuBuffer[]} */
    let results = [];
    try {
      results = await program.compiled.run(0, places.map(({ tensor }) => tensor));
      const read = await Promise.all(results.map((result, i) => this.download(result, this.outputs[i])));
      return Object.fromEntries(this.outputs.map(({ name }, i) => [name, read[i]]));
    } finally {
      for (const result of results) result.delete();
      for (const { tensor, pointer, buffer } of places) {
        tensor.delete();
        this.module.wgpuBufferRelease(pointer);
        buffer.destroy();
      }
    }
  }

  /**
   * @param {CppModel} model
   * @param {number} index
   * @param {any} data
   */
  upload(model, index, data) {
    const { module, gpu, heap } = this;
    const bytes = new Uint8Array(Math.ceil(data.byteLength / 4) * 4);
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    const { GPUBufferUsage } = /** @type {any} */ (globalThis);
    const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | GPUBufferUsage.STORAGE;
    const buffer = gpu.createBuffer({ size: bytes.length, usage });
    gpu.queue.writeBuffer(buffer, 0, bytes);
    const pointer = module.WebGPU.importJsBuffer(buffer);
    const type = model.getInputTensorType(0, index);
    const place = module.LiteRtTensorBufferType.WEB_GPU_BUFFER_PACKED;
    const tensor = module.LiteRtTensorBuffer.createFromWebGpuBuffer(heap.environment, type, place, pointer, bytes.length);
    type.delete();
    return { tensor, pointer, buffer };
  }

  /**
   * @param {GpuBuffer} result
   * @param {TensorSpec} spec
   * @returns {Promise<OrtTensor>}
   */
  async download(result, { name }) {
    const { gpu, heap, module } = this;
    const { dtype, shape } = heap.describe(result.tensorType(), name);
    const bytes = nbytesOf(dtype, shape);
    const source = module.WebGPU.getJsObject(result.getWebGpuBuffer());
    const { GPUBufferUsage, GPUMapMode } = /** @type {any} */ (globalThis);
    const target = gpu.createBuffer({ size: source.size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    const encoder = gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(source, 0, target, 0, source.size);
    gpu.queue.submit([encoder.finish()]);
    try {
      await target.mapAsync(GPUMapMode.READ);
      const data = arrayOver(dtype, new Uint8Array(target.getMappedRange().slice(result.offset(), result.offset() + bytes)));
      return new HostTensor(dtype, data, shape);
    } finally {
      target.destroy();
    }
  }

  drop() {
    if (!this.program) return;
    this.program.compiled.delete();
    this.program.model.delete();
    this.heap.free(this.program.pointer);
    this.program = undefined;
  }

  async release() {
    this.drop();
  }
}

/** @param {TensorSpec} spec @returns {import("./ort-webgpu-session.js").OrtMetadata} */
function metadataOf({ name, dtype, shape }) {
  return { name, isTensor: true, type: dtype, shape };
}
