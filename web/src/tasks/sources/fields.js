/** Reader of the JSON files of others: each field is checked for its type. The same refusals as `edge_infer.tasks.sources.fields`. */

import { EdgeInferError } from "../../errors.js";
import { isObject } from "../check-parameters.js";

/** The largest of these files; a list of labels is some 100 kB. */
const MAX_BYTES = 16 * 2 ** 20;
const MAX_LABELS = 100_000;
const AGAIN = "download the file again";

/** An object of a JSON file. */
export class Fields {
  /**
   * @param {Record<string, any>} values
   * @param {string} where The file's name, for errors.
   */
  constructor(values, where) {
    this.values = values;
    this.where = where;
  }

  /** @param {string} name @returns {any} What the file says; undefined where it says nothing or null. */
  get(name) {
    return Object.hasOwn(this.values, name) ? (this.values[name] ?? undefined) : undefined;
  }

  /** @param {string} name */
  has(name) {
    return this.get(name) !== undefined;
  }

  /** @param {string} name @param {string} [otherwise] @returns {string} */
  text(name, otherwise = "") {
    return this.#checked(name, otherwise, (value) => typeof value === "string", "text");
  }

  /** @param {string} name @param {boolean} [otherwise] @returns {boolean} */
  flag(name, otherwise = false) {
    return this.#checked(name, otherwise, (value) => typeof value === "boolean", "true or false");
  }

  /** @template T @param {string} name @param {T} [otherwise] @returns {number | T} A whole number from 0 on. */
  whole(name, otherwise) {
    return this.#checked(name, /** @type {T} */ (otherwise), (value) => Number.isInteger(value) && value >= 0, "a whole number");
  }

  /** @param {string} name @param {number} otherwise @returns {number} */
  real(name, otherwise) {
    return this.#checked(name, otherwise, isNumber, "a number");
  }

  /** @param {string} name @param {number[]} [otherwise] @returns {number[]} 1 to 16 numbers; none where nobody says. */
  numbers(name, otherwise = []) {
    const fits = (/** @type {any} */ value) => Array.isArray(value) && value.length >= 1 && value.length <= 16 && value.every(isNumber);
    return this.#checked(name, otherwise, fits, "a list of numbers");
  }

  /** @param {string} name @returns {string[]} Empty where there is none. */
  texts(name) {
    const fits = (/** @type {any} */ value) => Array.isArray(value) && value.length <= MAX_LABELS && value.every((one) => typeof one === "string");
    return this.#checked(name, [], fits, "a list of texts");
  }

  /** @param {string} name @returns {Fields | undefined} An object. */
  part(name) {
    const value = this.#checked(name, undefined, isObject, "an object");
    return value && new Fields(value, `${this.where} ${name}`);
  }

  /** @param {string} name @returns {string[]} The labels of an object `{"0": "cat", "1": "dog"}`, empty where there is none. */
  labels(name) {
    const part = this.part(name);
    return part ? numbered(part.values, `\`${this.where}\`: \`${name}\``) : [];
  }

  /**
   * @template T
   * @param {string} name
   * @param {T} otherwise
   * @param {(value: any) => boolean} fits
   * @param {string} expected
   * @returns {any}
   */
  #checked(name, otherwise, fits, expected) {
    const value = this.get(name);
    if (value === undefined) return otherwise;
    if (fits(value)) return value;
    const shown = JSON.stringify(value);
    throw new EdgeInferError(`\`${this.where}\`: \`${name}\` is ${shown.length <= 60 ? shown : `${shown.slice(0, 57)}...`}, expected ${expected}`, "bundle_error", {
      hint: AGAIN,
      details: { field: name },
    });
  }
}

/** @param {any} value @returns {boolean} Whether this is a finite number. */
function isNumber(value) {
  return typeof value === "number" && Math.abs(value) < 1e30;
}

/**
 * @param {Record<string, any>} names An object whose keys are 0, 1, 2, ... in any order.
 * @param {string} where
 * @returns {string[]} Its texts.
 */
function numbered(names, where) {
  const keys = Object.keys(names);
  const hint = 'write {"0": "cat", "1": "dog"}, a name for each class';
  const wrong = (/** @type {string} */ what) => new EdgeInferError(`${where} ${what}`, "bundle_error", { hint });
  if (!keys.length || keys.length > MAX_LABELS) throw wrong(`has ${keys.length} labels, expected 1 to ${MAX_LABELS}`);
  /** @type {string[]} */
  const found = new Array(keys.length);
  for (const key of keys) {
    if (!/^[0-9]{1,9}$/.test(key) || typeof names[key] !== "string") throw wrong(`has "${key.slice(0, 40)}", expected names by number`);
    found[Number(key)] = names[key];
  }
  if (found.length !== keys.length || Object.keys(found).length !== keys.length) throw wrong(`does not number its ${keys.length} labels from 0 on`);
  return found;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} where
 * @returns {Fields} A file that holds an object.
 * @throws {EdgeInferError} `bundle_error`: it is too large, not JSON, or holds something else.
 */
export function readFields(bytes, where) {
  const value = readAny(bytes, where);
  if (!isObject(value)) throw new EdgeInferError(`\`${where}\` does not hold an object`, "bundle_error", { hint: AGAIN });
  return new Fields(/** @type {Record<string, any>} */ (value), where);
}

/** @param {Uint8Array} bytes @param {string} where @returns {any} A file of JSON. */
export function readAny(bytes, where) {
  if (bytes.length > MAX_BYTES) {
    throw new EdgeInferError(`\`${where}\` has ${bytes.length} bytes, expected at most ${MAX_BYTES}`, "bundle_error", { hint: "is it this file?" });
  }
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new EdgeInferError(`\`${where}\` is not JSON: ${/** @type {Error} */ (error).message}`, "bundle_error", { hint: AGAIN });
  }
}
