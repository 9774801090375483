/** The datatypes of the Open Inference Protocol that JSON carries, and their arrays. */

/** @typedef {import("../src/tensors.js").Tensor} Tensor */

/** By dtype its datatype. @type {Record<string, string>} */
export const DATATYPES = {
  float32: "FP32",
  float64: "FP64",
  int8: "INT8",
  uint8: "UINT8",
  int16: "INT16",
  uint16: "UINT16",
  int32: "INT32",
  uint32: "UINT32",
  int64: "INT64",
  uint64: "UINT64",
  bool: "BOOL",
};
const ARRAYS = /** @type {Record<string, {from: (values: any[]) => any}>} */ ({
  FP32: Float32Array,
  FP64: Float64Array,
  INT8: Int8Array,
  UINT8: Uint8Array,
  INT16: Int16Array,
  UINT16: Uint16Array,
  INT32: Int32Array,
  UINT32: Uint32Array,
  BOOL: Uint8Array,
});

/**
 * @param {string} datatype
 * @param {number[]} shape
 * @param {any[]} values
 * @returns {Tensor}
 */
export function arrayOfDatatype(datatype, shape, values) {
  const dtype = Object.keys(DATATYPES).find((name) => DATATYPES[name] === datatype) ?? "float64";
  const flat = values.flat(Infinity);
  const data = datatype.endsWith("INT64") ? (datatype === "INT64" ? BigInt64Array : BigUint64Array).from(flat.map(BigInt)) : (ARRAYS[datatype] ?? Float64Array).from(flat);
  return /** @type {Tensor} */ ({ data, dtype, shape });
}
