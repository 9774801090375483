// Runs `model.wasm`, a model that `edge-infer compile` wrote. Nothing else is needed: the file holds the code, the
// weights and the description of its inputs and outputs.

const SECTION = "edge_infer.program";
const KINDS = {
  float32: Float32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
};
const DOT_SECTION = "edge_infer.dot";
const RANGES = { int8: [-128, 127], uint8: [0, 255], int16: [-32768, 32767] };

/**
 * A compiled model. One run ends before the next one starts, so its memory is used again. Variables of the model keep their
 * values from run to run, until `reset`.
 */
export class Model {
  #exports;
  #base;
  #state;

  /** @param {WebAssembly.Module} module @param {WebAssembly.Instance} instance */
  constructor(module, instance) {
    const [section] = WebAssembly.Module.customSections(module, SECTION);
    if (section === undefined) throw new TypeError("This is not a model of `edge-infer compile`");
    const program = JSON.parse(new TextDecoder().decode(section));
    if (program.version !== 1) throw new TypeError(`The model is of version ${program.version}, expected 1: take the model.js beside it`);
    this.inputs = program.inputs;
    this.outputs = program.outputs;
    this.#base = program.base;
    this.#exports = instance.exports;
    takeDot(module, this.#exports);
    // The first values are copied now: those of zeros are nowhere.
    const bytes = (offset, size) => new Uint8Array(this.#exports.memory.buffer, this.#base + offset, size);
    this.#state = (program.state ?? []).map(([offset, size, initial]) => [bytes(offset, size), initial < 0 ? new Uint8Array(size) : bytes(initial, size)]);
    this.reset();
  }

  /** Give the variables of the model their first values. */
  reset() {
    for (const [now, first] of this.#state) now.set(first);
  }

  /**
   * Run the model.
   *
   * @param {Record<string, ArrayLike<number> | BigInt64Array>} inputs Each input's elements. Of a quantized input a typed array of its
   *   own kind is taken as it is, other arrays are floats and are quantized.
   * @param {{quantized?: boolean}} [options] With `quantized` integers stay as they are.
   * @returns {Record<string, Float32Array | Int8Array | Uint8Array | Int16Array | Int32Array | BigInt64Array>} Each output's elements: floats, or integers.
   */
  run(inputs, { quantized = false } = {}) {
    for (const name of Object.keys(inputs)) {
      if (!this.inputs.some((tensor) => tensor.name === name)) throw new TypeError(`There is no input "${name}"; expected ${names(this.inputs)}`);
    }
    for (const tensor of this.inputs) this.#write(tensor, inputs[tensor.name]);
    this.#exports.run();
    return Object.fromEntries(this.outputs.map((tensor) => [tensor.name, this.#read(tensor, quantized)]));
  }

  #view({ dtype, shape, offset }) {
    const count = shape.reduce((product, size) => product * size, 1);
    return new KINDS[dtype](this.#exports.memory.buffer, this.#base + offset, count);
  }

  #write(tensor, values) {
    const view = this.#view(tensor);
    if (values === undefined) throw new TypeError(`The input "${tensor.name}" is missing; expected ${names(this.inputs)}`);
    if (values.length !== view.length) {
      throw new RangeError(`"${tensor.name}" has ${values.length} elements, expected ${view.length}: [${tensor.shape}]`);
    }
    if (!tensor.scale || !RANGES[tensor.dtype] || values.constructor === view.constructor) return view.set(values);
    const [low, high] = RANGES[tensor.dtype];
    for (let i = 0; i < view.length; i += 1) {
      view[i] = Math.min(Math.max(nearest(values[i] / tensor.scale) + tensor.zero, low), high);
    }
  }

  #read(tensor, quantized) {
    const view = this.#view(tensor);
    if (!tensor.scale || !RANGES[tensor.dtype] || quantized) return view.slice();
    return Float32Array.from(view, (value) => (value - tensor.zero) * tensor.scale);
  }
}

/**
 * Load a model.
 *
 * @param {string | URL | Response | BufferSource | WebAssembly.Module} [source] Where it lies, or what was fetched; by
 *   default `model.wasm` beside this file.
 * @returns {Promise<Model>}
 */
export async function load(source = new URL("model.wasm", import.meta.url)) {
  const module = source instanceof WebAssembly.Module ? source : await compiled(source);
  return new Model(module, await WebAssembly.instantiate(module));
}

/** @type {Promise<Model> | undefined} */
let first;

/**
 * Run the `model.wasm` beside this file; the first call loads it.
 *
 * @param {Record<string, ArrayLike<number>>} inputs @param {{quantized?: boolean}} [options]
 * @returns {Promise<Record<string, Float32Array | Int8Array | Uint8Array>>} As `Model.run` does.
 */
export async function run(inputs, options) {
  first ??= load().catch((error) => {
    first = undefined; // the next call tries again
    throw error;
  });
  return (await first).run(inputs, options);
}

async function compiled(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const response = typeof Response === "function" && source instanceof Response ? source : await fetch(source);
  if (!response.ok) throw new Error(`${response.url || source}: ${response.status} ${response.statusText}`);
  // Streaming refuses a file that the server calls something else, and in Firefox it holds up all others, for good where the page is left.
  const isWasm = response.headers.get("content-type")?.startsWith("application/wasm");
  if (isWasm && !globalThis.navigator?.userAgent.includes("Firefox/")) return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** Call the dot product of bytes for int8 convolutions, where the file has it and this processor's is exact. */
function takeDot(module, { memory, table }) {
  const [section] = WebAssembly.Module.customSections(module, DOT_SECTION);
  if (!section || !WebAssembly.validate(section)) return;
  const dot = new WebAssembly.Instance(new WebAssembly.Module(section), { env: { memory } }).exports;
  if (dot.is_exact()) table.set(0, dot.convolution_int8);
}

/** Round to the nearest whole number, halves to even, as the engines do. */
function nearest(value) {
  const whole = Math.round(value);
  return whole - value === 0.5 && whole % 2 !== 0 ? whole - 1 : whole;
}

const names = (tensors) => tensors.map((tensor) => `"${tensor.name}"`).join(", ");
