/** The check of a step's parameters. The same refusals as `edge_infer.tasks.parameters`. */

import { EdgeInferError } from "../errors.js";
import { didYouMean, listed, shown } from "./words.js";

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
/** Values as they are typed; words in capitals stand for what only the author knows. */
const EXAMPLES = {
  whole: "NUMBER",
  real: "NUMBER",
  flag: "true",
  text: '"TEXT"',
  numbers: "[NUMBER, NUMBER]",
  names: '{"NAME": "TEXT"}',
  texts: '["TEXT", "TEXT"]',
  lists: '{"NAME": ["TEXT", "TEXT"]}',
  expressions: '[["col", "NAME"]]',
};

/**
 * @param {Record<string, unknown>} given
 * @param {Record<string, Declared>} declared
 * @param {string} where
 * @returns {Record<string, any>} The parameters that were given, checked, and the defaults of the others.
 * @throws {EdgeInferError} `manifest_error`: one is unknown, lacks, or does not fit; the message names it.
 */
export function checked(given, declared, where) {
  const known = Object.keys(declared);
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(declared, name)) continue;
    throw new EdgeInferError(`${where} has no parameter \`${name}\``, "manifest_error", {
      hint: didYouMean(name, known) || (known.length ? `its parameters are ${listed(known)}` : "leave it out: it has none"),
      details: { field: name },
    });
  }
  /** @type {Record<string, any>} */
  const found = {};
  for (const [name, one] of Object.entries(declared)) {
    if (Object.hasOwn(given, name)) {
      checkValue(one, name, given[name], `${where}: `);
      found[name] = given[name];
    } else if (!("default" in one)) {
      const hint = `write "${name}": ${example(one)}`;
      throw new EdgeInferError(`${where} lacks \`${name}\`, expected ${expected(one)}`, "manifest_error", { hint, details: { field: name } });
    } else {
      found[name] = one.default;
    }
  }
  return found;
}

/**
 * @param {Declared} declared
 * @param {string} name The parameter's, for the error.
 * @param {unknown} value
 * @param {string} [where] What stands before the name in the error.
 * @param {string} [code] Of the error.
 * @throws {EdgeInferError} It is of another kind, or out of range.
 */
export function checkValue(declared, name, value, where = "", code = "manifest_error") {
  if ((value === null && declared.default === null) || fits(declared, value)) return;
  const near = typeof value === "string" && didYouMean(value, declared.choices ?? []);
  throw new EdgeInferError(`${where}\`${name}\` is ${shown(value)}, expected ${expected(declared)}`, code, {
    hint: near || `write "${name}": ${example(declared, value)}`,
    details: { field: name, got: value },
  });
}

/** @param {Declared} declared @param {unknown} [value] @returns {string} What may stand in its place: the limit that it is beyond, else the default. */
function example({ kind, choices = [], length, low = -Infinity, high = Infinity, default: usual }, value) {
  if (["whole", "real"].includes(kind) && typeof value === "number") {
    if (value < low) return shown(low);
    if (value > high) return shown(high);
  }
  if (usual !== undefined && usual !== null) return shown(usual, 1000);
  if (kind === "choice") return shown(choices[0]);
  return length === undefined ? EXAMPLES[kind] : `[${Array(length).fill("NUMBER").join(", ")}]`;
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
