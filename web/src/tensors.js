/**
 * Define element types and tensor specs, and check a caller's values against a spec.
 *
 * The words and the rules are those of `edge_infer.tensors.tensor` and of `Session.run`: the name, the dtype, the rank and
 * the fixed dimensions must fit, and nothing is cast silently.
 */

import { EdgeInferError } from "./errors.js";

/**
 * @typedef {"float32" | "float64" | "float16" | "bfloat16" | "int4" | "uint4" | "int8" | "uint8" | "int16" | "uint16"
 *   | "int32" | "uint32" | "int64" | "uint64" | "bool" | "string"} DType
 */
/** @typedef {{name: string, dtype: DType, shape: (number | string)[]}} TensorSpec */
/**
 * @typedef {Float32Array | Float64Array | Uint16Array | Int8Array | Uint8Array | Uint8ClampedArray | Int16Array
 *   | Int32Array | Uint32Array | BigInt64Array | BigUint64Array} NumberArray
 */
/** @typedef {NumberArray | string[]} TensorData */
/** @typedef {{data: TensorData, dtype: DType, shape: number[]}} Tensor A tensor in the page's memory. */
/** @typedef {{bytes: Uint8Array | null, strings: string[] | null, shape: number[]}} Checked */
/** @typedef {{bits: number, code: number, arrays: Function[], low?: bigint | number, high?: bigint | number}} Kind */

const Half = /** @type {typeof Uint16Array} */ (/** @type {any} */ (globalThis).Float16Array ?? Uint16Array);

/**
 * The element types: bits of one element, ONNX's number for the type, and the arrays that may hold it, of which the
 * first is the one that results come in. float16 comes as a Float16Array where the browser has it, else, like
 * bfloat16 always, as its bits; 4-bit values come two to a byte, the first in the low half.
 *
 * @type {Record<DType, Kind>}
 */
export const DTYPES = {
  float32: { bits: 32, code: 1, arrays: [Float32Array] },
  uint8: { bits: 8, code: 2, arrays: [Uint8Array, Uint8ClampedArray], low: 0, high: 255 },
  int8: { bits: 8, code: 3, arrays: [Int8Array], low: -128, high: 127 },
  uint16: { bits: 16, code: 4, arrays: [Uint16Array], low: 0, high: 65535 },
  int16: { bits: 16, code: 5, arrays: [Int16Array], low: -32768, high: 32767 },
  int32: { bits: 32, code: 6, arrays: [Int32Array], low: -(2 ** 31), high: 2 ** 31 - 1 },
  int64: { bits: 64, code: 7, arrays: [BigInt64Array], low: -(2n ** 63n), high: 2n ** 63n - 1n },
  string: { bits: 0, code: 8, arrays: [Array] },
  bool: { bits: 8, code: 9, arrays: [Uint8Array] },
  float16: { bits: 16, code: 10, arrays: [Half, Uint16Array] },
  float64: { bits: 64, code: 11, arrays: [Float64Array] },
  uint32: { bits: 32, code: 12, arrays: [Uint32Array], low: 0, high: 2 ** 32 - 1 },
  uint64: { bits: 64, code: 13, arrays: [BigUint64Array], low: 0n, high: 2n ** 64n - 1n },
  bfloat16: { bits: 16, code: 16, arrays: [Uint16Array] },
  uint4: { bits: 4, code: 21, arrays: [Uint8Array], low: 0, high: 15 },
  int4: { bits: 4, code: 22, arrays: [Uint8Array], low: -8, high: 7 },
};

const BY_CODE = new Map(Object.entries(DTYPES).map(([name, kind]) => [kind.code, /** @type {DType} */ (name)]));

/**
 * @param {number} code ONNX's number for an element type.
 * @returns {DType | undefined}
 */
export function dtypeOfCode(code) {
  return BY_CODE.get(code);
}

/**
 * @param {readonly number[]} shape
 * @returns {number} The number of elements.
 */
export function sizeOf(shape) {
  return shape.reduce((product, dim) => product * dim, 1);
}

/**
 * @param {DType} dtype
 * @param {readonly number[]} shape
 * @returns {number} The bytes of the data; 0 for strings.
 */
export function nbytesOf(dtype, shape) {
  return Math.ceil((sizeOf(shape) * DTYPES[dtype].bits) / 8);
}

/**
 * See bytes as the array of a dtype, without a copy.
 *
 * @param {DType} dtype
 * @param {Uint8Array} bytes Aligned to the element's size.
 * @returns {NumberArray}
 */
export function arrayOver(dtype, bytes) {
  const array = /** @type {any} */ (DTYPES[dtype].arrays[0]);
  return new array(bytes.buffer, bytes.byteOffset, bytes.byteLength / array.BYTES_PER_ELEMENT);
}

/**
 * @param {NumberArray} data
 * @returns {Uint8Array} The same memory as bytes.
 */
export function bytesOver(data) {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/**
 * Copy an output into the caller's array.
 *
 * @param {string} name The output's.
 * @param {{dtype: DType, shape: number[]}} description
 * @param {Uint8Array} source Its bytes.
 * @param {NumberArray} target
 * @returns {Tensor} Over the caller's array.
 * @throws {EdgeInferError} `input_error`: the array is of another kind or size.
 */
export function copyInto(name, { dtype, shape }, source, target) {
  if (target.byteLength !== source.byteLength || !DTYPES[dtype].arrays.some((array) => target instanceof array)) {
    throw new EdgeInferError(
      `\`into\` gives output \`${name}\` a ${target.constructor.name} of ${target.byteLength} bytes, its shape (${shape}) takes ${source.byteLength}`,
      "input_error",
      { details: { output: name, expected: source.byteLength, got: target.byteLength } },
    );
  }
  bytesOver(target).set(source);
  return { data: target, dtype, shape };
}

/**
 * @param {readonly (number | string)[]} shape
 * @returns {string} The shape as Python writes it: `(batch, 3, 224, 224)`.
 */
export function shapeText(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

/**
 * Find what the symbols of the inputs' specs stand for.
 *
 * @param {readonly TensorSpec[]} specs
 * @param {Record<string, readonly number[]>} shapes
 * @returns {Map<string, number | null>} Of each symbol its size, or null where two inputs disagree.
 */
export function symbolSizes(specs, shapes) {
  /** @type {Map<string, number | null>} */
  const sizes = new Map();
  for (const spec of specs) {
    const shape = shapes[spec.name];
    if (!shape) continue;
    spec.shape.forEach((dim, axis) => {
      if (typeof dim !== "string") return;
      sizes.set(dim, sizes.has(dim) && sizes.get(dim) !== shape[axis] ? null : shape[axis]);
    });
  }
  return sizes;
}

/**
 * Check the inputs of a run.
 *
 * @param {readonly TensorSpec[]} specs
 * @param {Record<string, unknown>} feeds
 * @param {(value: unknown) => boolean} [isChecked] Whether a value needs no check.
 * @returns {(Checked | null)[]} In the order of the specs; null for those that need no check.
 * @throws {EdgeInferError} `input_error`: one is unknown, missing, or does not fit.
 */
export function checkInputs(specs, feeds, isChecked = () => false) {
  checkNames("Input", Object.keys(feeds), specs);
  return specs.map((spec) => {
    const value = feeds[spec.name];
    if (value === undefined) throw new EdgeInferError(`Input \`${spec.name}\` is missing`, "input_error", { details: { input: spec.name } });
    return isChecked(value) ? null : checkInput(spec, value);
  });
}

/**
 * Check a caller's value against its spec, and give its bytes.
 *
 * @param {TensorSpec} spec
 * @param {unknown} value A typed array, `{data, dtype, shape}`, a number or text, or nested arrays of them.
 * @returns {Checked} The bytes, without a copy where there was a typed array, or the strings.
 * @throws {EdgeInferError} `input_error`: the dtype, the rank, a dimension or the number of elements does not fit.
 */
export function checkInput(spec, value) {
  const given = /** @type {{data?: unknown, dtype?: string, shape?: number[]} | null} */ (
    value !== null && typeof value === "object" && "data" in value ? value : null
  );
  if (given?.dtype !== undefined && given.dtype !== spec.dtype) {
    throw misfit(spec, `dtype ${given.dtype}`, spec.dtype);
  }
  const data = given ? given.data : value;
  if (ArrayBuffer.isView(data)) return checkArray(spec, /** @type {NumberArray} */ (data), given?.shape);

  const nested = flatten(data, spec.name);
  const shape = given?.shape ?? nested.shape;
  checkShape(spec, shape);
  if (sizeOf(shape) !== nested.flat.length) {
    throw misfit(spec, `${nested.flat.length} elements`, `${sizeOf(shape)} for shape ${shapeText(shape)}`);
  }
  if (spec.dtype === "string") {
    const wrong = nested.flat.find((text) => typeof text !== "string" || text.includes("\0"));
    if (wrong !== undefined) throw misfit(spec, JSON.stringify(wrong), "text without a NUL character");
    return { bytes: null, strings: /** @type {string[]} */ (nested.flat), shape };
  }
  return { bytes: pack(spec, nested.flat), strings: null, shape };
}

/**
 * @param {TensorSpec} spec
 * @param {NumberArray} data
 * @param {number[] | undefined} given
 * @returns {Checked}
 */
function checkArray(spec, data, given) {
  const kind = DTYPES[spec.dtype];
  if (!kind.arrays.some((array) => data instanceof array)) {
    throw misfit(spec, `a ${data.constructor.name}`, `a ${kind.arrays[0].name} for dtype ${spec.dtype}`);
  }
  const count = kind.bits === 4 ? null : data.length;
  const shape = given ?? inferShape(spec, count);
  checkShape(spec, shape);
  if (data.byteLength !== nbytesOf(spec.dtype, shape)) {
    throw misfit(spec, `${data.length} elements`, `${sizeOf(shape)} for shape ${shapeText(shape)}`);
  }
  return { bytes: bytesOver(data), strings: null, shape };
}

/**
 * Find the shape of a flat array by its length, where at most one dimension is free.
 *
 * @param {TensorSpec} spec
 * @param {number | null} count
 * @returns {number[]}
 */
function inferShape(spec, count) {
  const fixed = sizeOf(/** @type {number[]} */ (spec.shape.filter((dim) => typeof dim === "number")));
  const free = spec.shape.filter((dim) => typeof dim === "string").length;
  if (free === 0) return /** @type {number[]} */ ([...spec.shape]);
  if (free === 1 && count !== null && fixed > 0 && count % fixed === 0) {
    return spec.shape.map((dim) => (typeof dim === "number" ? dim : count / fixed));
  }
  throw new EdgeInferError(
    `Input \`${spec.name}\` is a flat array, and its shape ${shapeText(spec.shape)} does not follow from its length`,
    "input_error",
    { hint: "pass {data, shape}", details: { input: spec.name, expected: spec.shape } },
  );
}

/**
 * @param {TensorSpec} spec
 * @param {readonly number[]} shape
 */
export function checkShape(spec, shape) {
  const fits =
    shape.length === spec.shape.length &&
    spec.shape.every((dim, axis) => (typeof dim === "string" ? shape[axis] >= 0 : shape[axis] === dim));
  if (!fits) throw misfit(spec, `shape ${shapeText(shape)}`, shapeText(spec.shape));
}

/**
 * Refuse a name that none of the specs has.
 *
 * @param {"Input" | "Output"} kind
 * @param {string[]} names
 * @param {readonly TensorSpec[]} specs
 */
export function checkNames(kind, names, specs) {
  const wrong = names.find((name) => !specs.some((spec) => spec.name === name));
  if (wrong === undefined) return;
  const known = specs.map((spec) => spec.name);
  throw new EdgeInferError(
    `${kind} \`${wrong}\` is not known; choose from ${known.map((name) => `\`${name}\``).join(", ")}`,
    "input_error",
    { details: { [kind.toLowerCase()]: wrong, allowed: known } },
  );
}

/**
 * @param {readonly TensorSpec[]} specs
 * @returns {Record<string, Tensor>} Zeros, or empty texts, each free dimension being 1: good for timing alone.
 */
export function madeUpInputs(specs) {
  const made = specs.map(({ name, dtype, shape }) => {
    const dims = shape.map((dim) => (typeof dim === "number" ? dim : 1));
    const data = dtype === "string" ? Array(sizeOf(dims)).fill("") : arrayOver(dtype, new Uint8Array(nbytesOf(dtype, dims)));
    return [name, { data, dtype, shape: dims }];
  });
  return Object.fromEntries(made);
}

/**
 * @param {TensorSpec} spec
 * @param {string} got
 * @param {string} expected
 */
function misfit(spec, got, expected) {
  return new EdgeInferError(`Input \`${spec.name}\` has ${got}, expected ${expected}`, "input_error", {
    details: { input: spec.name, expected, got },
  });
}

/**
 * @param {unknown} value
 * @param {string} name
 * @returns {{shape: number[], flat: unknown[]}}
 */
function flatten(value, name) {
  if (!Array.isArray(value)) return { shape: [], flat: [value] };
  if (value.length === 0) return { shape: [0], flat: [] };
  const parts = value.map((item) => flatten(item, name));
  const shape = parts[0].shape;
  if (parts.some((part) => part.shape.join() !== shape.join())) {
    throw new EdgeInferError(`Input \`${name}\` is a ragged array: its rows differ in length`, "input_error", {
      details: { input: name },
    });
  }
  return { shape: [value.length, ...shape], flat: parts.flatMap((part) => part.flat) };
}

/**
 * @param {TensorSpec} spec
 * @param {unknown[]} flat
 * @returns {Uint8Array}
 */
function pack(spec, flat) {
  const { dtype } = spec;
  const kind = DTYPES[dtype];
  const big = kind.bits === 64 && dtype !== "float64";
  const values = flat.map((value) => element(spec, kind, big, value));
  if (kind.bits === 4) {
    const packed = new Uint8Array(Math.ceil(values.length / 2));
    values.forEach((value, i) => (packed[i >> 1] |= (Number(value) & 15) << (4 * (i & 1))));
    return packed;
  }
  if (dtype === "bfloat16") return bytesOver(Uint16Array.from(values, (value) => toBfloat16(Number(value))));
  if (dtype === "float16" && Half === Uint16Array) {
    return bytesOver(Uint16Array.from(values, (value) => toFloat16(Number(value))));
  }
  return bytesOver(/** @type {any} */ (kind.arrays[0]).from(values));
}

/**
 * @param {TensorSpec} spec
 * @param {Kind} kind
 * @param {boolean} big
 * @param {unknown} value
 * @returns {number | bigint}
 */
function element(spec, kind, big, value) {
  const wrong = () => misfit(spec, `the element ${String(value)}`, `a value of dtype ${spec.dtype}`);
  if (spec.dtype === "bool") {
    if (typeof value !== "boolean" && value !== 0 && value !== 1) throw wrong();
    return Number(value);
  }
  if (typeof value !== "number" && typeof value !== "bigint") throw wrong();
  if (kind.low === undefined || kind.high === undefined) return Number(value);
  if (typeof value === "number" && !Number.isInteger(value)) throw wrong();
  if (value < kind.low || value > kind.high) throw wrong();
  return big ? BigInt(value) : Number(value);
}

const scratch = new DataView(new ArrayBuffer(8));

/**
 * Round to the nearest bfloat16, ties to even.
 *
 * @param {number} value
 * @returns {number} Its 16 bits.
 */
export function toBfloat16(value) {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(value)) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/**
 * Round to the nearest float16, ties to even, from double precision and in one step.
 *
 * @param {number} value
 * @returns {number} Its 16 bits.
 */
export function toFloat16(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(size)) return 0x7e00;
  // From half way between the largest float16, 65504, and the next step up, a value rounds to infinity.
  if (size >= 65520) return sign | 0x7c00;
  const exponent = size < 2 ** -14 ? -14 : Math.floor(Math.log2(size)) - (size < 2 ** Math.floor(Math.log2(size)) ? 1 : 0);
  const steps = size / 2 ** (exponent - 10);
  const floor = Math.floor(steps);
  const rounded = floor + (steps - floor > 0.5 || (steps - floor === 0.5 && floor % 2 === 1) ? 1 : 0);
  // A mantissa that rounds up to 2048 carries into the exponent by itself, subnormals into the first normal too.
  return sign | (rounded < 1024 && exponent === -14 ? rounded : ((exponent + 15) << 10) + (rounded - 1024));
}
