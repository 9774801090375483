/** The check of a step's parameters. The same refusals as `edge_infer.tasks.parameters`. */

import { InferError } from "../errors.js";
import { didYouMean, listed } from "./words.js";

/** @typedef {import("./parameters.js").Declared} Declared */

/** The longest list of numbers: the anchors of a large detector are some 20,000. */
const MAX_LIST = 2 ** 20;
const WORDS = {
  whole: "a whole number",
  real: "a number",
  flag: "true or false",
  text: "text",
  numbers: "a list of numbers",
  names: "an object of texts",
  texts: "a list of texts",
  lists: "an object of lists of texts or numbers",
  expressions: "a list of expressions",
};

/**
 * @param {Record<string, unknown>} given
 * @param {Record<string, Declared>} declared
 * @param {string} where
 * @returns {Record<string, any>} The parameters that were given, checked, and the defaults of the others.
 * @throws {InferError} `manifest_error`: one is unknown, lacks, or does not fit; the message names it.
 */
export function checked(given, declared, where) {
  const known = Object.keys(declared);
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(declared, name)) continue;
    throw new InferError(`${where} has no parameter \`${name}\``, "manifest_error", {
      hint: didYouMean(name, known) || `its parameters are ${listed(known)}`,
      details: { field: name },
    });
  }
  /** @type {Record<string, any>} */
  const found = {};
  for (const [name, one] of Object.entries(declared)) {
    if (Object.hasOwn(given, name)) {
      checkValue(one, given[name], `${where}: \`${name}\``);
      found[name] = given[name];
    } else if (!("default" in one)) {
      throw new InferError(`${where} lacks \`${name}\`, expected ${expected(one)}`, "manifest_error", { details: { field: name } });
    } else {
      found[name] = one.default;
    }
  }
  return found;
}

/**
 * @param {Declared} declared
 * @param {unknown} value
 * @param {string} where
 * @param {string} [code] Of the error.
 * @throws {InferError} It is of another kind, or out of range.
 */
export function checkValue(declared, value, where, code = "manifest_error") {
  if ((value === null && declared.default === null) || fits(declared, value)) return;
  const text = JSON.stringify(value) ?? String(value);
  const shown = text.length <= 60 ? text : `${text.slice(0, 57)}...`;
  throw new InferError(`${where} is ${shown}, expected ${expected(declared)}`, code, { details: { got: value } });
}

/** @param {Declared} declared @returns {string} What a value must be, in words. */
function expected({ kind, choices = [], length, low, high }) {
  if (kind === "choice") return listed(choices);
  const words = length === undefined ? WORDS[kind] : `a list of ${length} numbers`;
  if (low !== undefined && high !== undefined) return `${words} from ${low} to ${high}`;
  return low !== undefined ? `${words} of at least ${low}` : words;
}

/** @param {Declared} declared @param {any} value @returns {boolean} */
function fits(declared, value) {
  switch (declared.kind) {
    case "choice":
      return typeof value === "string" && (declared.choices ?? []).includes(value);
    case "flag":
      return typeof value === "boolean";
    case "text":
      return typeof value === "string" && value !== "";
    case "names":
      return isObject(value) && Object.values(value).every((one) => typeof one === "string");
    case "texts":
      return isListOf(value, ["string"]) && [undefined, value.length].includes(declared.length);
    case "lists":
      return isObject(value) && Object.values(value).every((one) => isListOf(one, ["string", "number"]));
    case "expressions":
      return Array.isArray(value) && value.length <= MAX_LIST;
    case "numbers":
      if (!Array.isArray(value) || value.length > MAX_LIST) return false;
      return [undefined, value.length].includes(declared.length) && value.every((one) => isInRange(declared, one));
    default:
      return (declared.kind === "real" || Number.isInteger(value)) && isInRange(declared, value);
  }
}

/** @param {unknown} value @param {string[]} kinds @returns {boolean} */
function isListOf(value, kinds) {
  return Array.isArray(value) && value.length <= MAX_LIST && value.every((one) => kinds.includes(typeof one));
}

/** @param {Declared} declared @param {unknown} value @returns {boolean} */
function isInRange({ low, high }, value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return false;
  return (low === undefined || value >= low) && (high === undefined || value <= high);
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
