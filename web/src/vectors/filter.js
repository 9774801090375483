/** Which rows of a segment a filter on metadata lets through: `edge_infer/vectors/columns.py`. */

import { EdgeInferError } from "../errors.js";

const MISSING = 0xffffffff;
const OPERATIONS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"];

/** @typedef {string | number | boolean} Scalar */
/** @typedef {Scalar | Scalar[] | Record<string, Scalar | Scalar[]>} Condition */
/** @typedef {Record<string, Condition>} Where By name: a value, a list of values, or operations such as `{">=": 2020}`. */
/** @typedef {(value: Scalar) => boolean} Test */
/** @typedef {{data: Float64Array | Uint32Array, values: Scalar[] | null}} Column */

export class Filter {
  /**
   * @param {Where} where
   * @param {string[]} known The names of all columns.
   * @throws {EdgeInferError} `input_error`: a name or an operation is unknown, or a value cannot be compared.
   */
  constructor(where, known) {
    this.tests = Object.entries(where).map(([name, condition]) => {
      if (!known.includes(name)) {
        const hint = `the entries have ${known.map((one) => `\`${one}\``).join(", ") || "nothing"}`;
        throw new EdgeInferError(`No entry has \`${name}\` in its metadata`, "input_error", { hint, details: { allowed: known } });
      }
      return { name, test: testOf(name, condition) };
    });
  }

  /**
   * @param {Map<string, Column>} columns
   * @param {number} count
   * @returns {Uint8Array<ArrayBuffer>} A byte for each row, 1 where it passes.
   */
  mask(columns, count) {
    const mask = new Uint8Array(count).fill(1);
    for (const { name, test } of this.tests) {
      const column = columns.get(name);
      if (!column) return mask.fill(0);
      const { data, values } = column;
      const passes = values?.map(test);
      for (let row = 0; row < count; row++) {
        const value = data[row];
        if (passes && value !== MISSING && value >= passes.length) {
          throw new EdgeInferError(`The column \`${name}\` of the index is damaged`, "bundle_error", { hint: "build the index again" });
        }
        const isIn = passes ? value !== MISSING && passes[value] : !Number.isNaN(value) && test(value);
        if (!isIn) mask[row] = 0;
      }
    }
    return mask;
  }
}

/** @param {string} name @param {Condition} condition @returns {Test} */
function testOf(name, condition) {
  if (Array.isArray(condition)) return operation(name, "in", condition);
  if (typeof condition !== "object" || condition === null) return operation(name, "==", condition);
  const tests = Object.entries(condition).map(([sign, wanted]) => operation(name, sign, wanted));
  return (value) => tests.every((test) => test(value));
}

/** @param {string} name @param {string} sign @param {Scalar | Scalar[]} wanted @returns {Test} */
function operation(name, sign, wanted) {
  if (!OPERATIONS.includes(sign)) {
    throw new EdgeInferError(`\`${name}\` is compared by ${JSON.stringify(sign)}`, "input_error", { hint: `use ${OPERATIONS.join(", ")}` });
  }
  const several = sign === "in" || sign === "not in" ? wanted : [wanted];
  if (!Array.isArray(several) || !several.every((one) => ["string", "number", "boolean"].includes(typeof one))) {
    throw new EdgeInferError(`\`${name}\` is compared with ${JSON.stringify(wanted)}`, "input_error", { hint: "use a text, a number, or true or false" });
  }
  if (sign === "==" || sign === "in") return (value) => several.includes(value);
  if (sign === "!=" || sign === "not in") return (value) => !several.includes(value);
  const only = /** @type {Scalar} */ (several[0]);
  const order = (/** @type {Scalar} */ value) => (typeof value === typeof only ? compare(value, only) : NaN);
  if (sign === "<") return (value) => order(value) < 0;
  if (sign === "<=") return (value) => order(value) <= 0;
  return sign === ">" ? (value) => order(value) > 0 : (value) => order(value) >= 0;
}

/** @param {Scalar} one @param {Scalar} other Of the same kind. @returns {number} Texts are in the order of their characters, as in Python. */
function compare(one, other) {
  if (typeof one !== "string" || typeof other !== "string") return Number(one) - Number(other);
  const [first, second] = [[...one], [...other]];
  for (let i = 0; i < Math.min(first.length, second.length); i++) {
    const order = Number(first[i].codePointAt(0)) - Number(second[i].codePointAt(0));
    if (order) return order;
  }
  return first.length - second.length;
}
