/** Made inputs: values for a model's specs where nobody gives any. */

/** @typedef {import("../src/tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../src/tensors.js").Tensor} Tensor */

/** The most values that are made for one input: free dimensions are 1, so more means a very large model. */
const MAX_VALUES = 2 ** 24;
const FLOATS = /** @type {Record<string, any>} */ ({ float32: Float32Array, float64: Float64Array });
const INTEGERS = /** @type {Record<string, any>} */ ({ int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array });

/**
 * Make a tensor for each spec: floats follow a slow wave between -1 and 1, the same each time; integers are 0 or 1.
 *
 * @param {readonly TensorSpec[]} specs
 * @returns {Record<string, Tensor>}
 * @throws {Error} An input has a dtype that the page cannot make, or is too large.
 */
export function dummyInputs(specs) {
  return Object.fromEntries(specs.map(({ name, dtype, shape: free }) => {
    const shape = free.map((dim) => (typeof dim === "number" ? dim : 1));
    const count = shape.reduce((all, dim) => all * dim, 1);
    if (count > MAX_VALUES) throw new Error(`The input ${name} has ${count} values: too many to make one here`);
    return [name, /** @type {Tensor} */ ({ data: made(name, dtype, count), dtype, shape })];
  }));
}

/** @param {string} name @param {string} dtype @param {number} count */
function made(name, dtype, count) {
  if (FLOATS[dtype]) return FLOATS[dtype].from({ length: count }, (/** @type {unknown} */ _, /** @type {number} */ i) => Math.sin(i * 0.37));
  if (INTEGERS[dtype]) return INTEGERS[dtype].from({ length: count }, (/** @type {unknown} */ _, /** @type {number} */ i) => (i % 3 === 2 ? 0 : 1));
  if (dtype === "int64") return BigInt64Array.from({ length: count }, (_, i) => (i % 3 === 2 ? 0n : 1n));
  throw new Error(`The page makes no ${dtype} for the input ${name}`);
}
