/** Writes small ONNX models for the tests: just enough protobuf, by the field numbers of onnx.proto3. */

import { DTYPES } from "../src/tensors.js";

/** @typedef {import("../src/tensors.js").DType} DType */
/** @typedef {{name: string, dtype: DType, shape: (number | string | null)[]}} Value */

/** @param {number | bigint} value */
function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
}

/** @param {number} number @param {number | bigint} value */
const int = (number, value) => [...varint(number << 3), ...varint(value)];

/** @param {number} number @param {string | ArrayLike<number>} content */
function field(number, content) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  return [...varint((number << 3) | 2), ...varint(bytes.length), ...Array.from(bytes)];
}

/** @param {Value} value */
function valueInfo({ name, dtype, shape }) {
  const dims = shape.map((dim) =>
    field(1, dim === null ? [] : typeof dim === "number" ? int(1, dim) : field(2, dim)),
  );
  const tensor = [...int(1, DTYPES[dtype].code), ...field(2, dims.flat())];
  return [...field(1, name), ...field(2, field(1, tensor))];
}

/**
 * @param {string} type
 * @param {string[]} inputs
 * @param {string[]} outputs
 * @param {Record<string, number | string | number[]>} [attributes]
 */
export function node(type, inputs, outputs, attributes = {}) {
  const written = Object.entries(attributes).map(([name, value]) => {
    if (Array.isArray(value)) return [...field(1, name), ...value.flatMap((one) => int(8, one)), ...int(20, 7)];
    if (typeof value === "string") return [...field(1, name), ...field(4, value), ...int(20, 3)];
    return [...field(1, name), ...int(3, value), ...int(20, 2)];
  });
  return [
    ...inputs.flatMap((name) => field(1, name)),
    ...outputs.flatMap((name) => field(2, name)),
    ...field(4, type),
    ...written.flatMap((attribute) => field(5, attribute)),
  ];
}

/**
 * @param {string} name
 * @param {DType} dtype
 * @param {number[]} shape
 * @param {ArrayBufferView} data
 */
export function initializer(name, dtype, shape, data) {
  const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return [...shape.flatMap((dim) => int(1, dim)), ...int(2, DTYPES[dtype].code), ...field(8, name), ...field(9, raw)];
}

/**
 * @param {Value[]} inputs
 * @param {Value[]} outputs
 * @param {number[][]} nodes
 * @param {number[][]} [initializers]
 * @param {number} [opset]
 * @returns {Uint8Array}
 */
export function model(inputs, outputs, nodes, initializers = [], opset = 21) {
  const graph = [
    ...nodes.flatMap((one) => field(1, one)),
    ...field(2, "test"),
    ...initializers.flatMap((one) => field(5, one)),
    ...inputs.flatMap((value) => field(11, valueInfo(value))),
    ...outputs.flatMap((value) => field(12, valueInfo(value))),
  ];
  return Uint8Array.from([...int(1, 10), ...field(8, [...field(1, ""), ...int(2, opset)]), ...field(7, graph)]);
}

/**
 * @param {DType} dtype
 * @param {(number | string | null)[]} shape
 */
export function identity(dtype, shape) {
  return model([{ name: "x", dtype, shape }], [{ name: "y", dtype, shape }], [node("Identity", ["x"], ["y"])]);
}
