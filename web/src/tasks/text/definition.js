/** The JSON of a `tokenizer.json`, read by type. The same reader as `edge_infer/tasks/text/definition.py`. */

import { EdgeInferError } from "../../errors.js";

const HINT = "save it again with the package tokenizers: `tokenizer.save('tokenizer.json')`";
const MAX_DEPTH = 32;
const MAX_BYTES = 128 * 2 ** 20;

/**
 * @param {string} where
 * @param {string} what
 * @returns {EdgeInferError} The error of a file that is damaged.
 */
export function malformed(where, what) {
  return new EdgeInferError(`tokenizer.json: ${where} ${what}`, "bundle_error", { hint: HINT, details: { where } });
}

/**
 * @param {string} where
 * @param {string} what
 * @param {string} [hint]
 * @returns {EdgeInferError} The error of a file that asks for something that is not built.
 */
export function unsupported(where, what, hint = "") {
  return new EdgeInferError(`tokenizer.json: ${where}: ${what} is not supported`, "unsupported_model", { hint, details: { where } });
}

/** @param {unknown} value */
function kind(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "boolean") return "true or false";
  if (typeof value === "number") return "a number";
  return typeof value === "string" ? "a text" : Array.isArray(value) ? "a list" : "an object";
}

/** One object of the file, and where it stands in it. */
export class Part {
  /**
   * @param {unknown} value
   * @param {string} where
   * @throws {EdgeInferError} `bundle_error`: it is not an object, or inside too many.
   */
  constructor(value, where) {
    if (kind(value) !== "an object") throw malformed(where ? `\`${where}\`` : "the file", `must be an object, not ${kind(value)}`);
    if (where.split(".").length > MAX_DEPTH) throw malformed("the file", "is nested too deeply");
    this.values = /** @type {Record<string, unknown>} */ (value);
    this.where = where;
  }

  /** @returns {string} Its `type`. */
  get kind() {
    return this.text("type");
  }

  /** @param {string} key */
  inside(key) {
    return this.where ? `${this.where}.${key}` : key;
  }

  /**
   * @template T
   * @param {string} key
   * @param {string} wanted
   * @param {T} [missing]
   * @returns {any}
   */
  #value(key, wanted, missing) {
    const value = Object.hasOwn(this.values, key) ? this.values[key] : undefined;
    if (value === null || value === undefined) {
      if (missing === undefined) throw malformed(this.where ? `\`${this.where}\`` : "the file", `has no \`${key}\``);
      return missing;
    }
    if (kind(value) !== wanted) throw malformed(`\`${this.inside(key)}\``, `must be ${wanted}, not ${kind(value)}`);
    return value;
  }

  /** @param {string} key @param {string} [missing] @returns {string} */
  text(key, missing) {
    return this.#value(key, "a text", missing);
  }

  /** @param {string} key @returns {string | null} */
  textOrNull(key) {
    return this.#value(key, "a text", null);
  }

  /** @param {string} key @param {boolean} missing @returns {boolean} */
  flag(key, missing) {
    return this.#value(key, "true or false", missing);
  }

  /** @param {string} key @param {number} [missing] @returns {number} From 0 to 2 ** 32 - 1. */
  whole(key, missing) {
    const value = this.#value(key, "a number", missing);
    if (!isId(value)) throw malformed(`\`${this.inside(key)}\``, "must be a whole number from 0 to 4294967295");
    return value;
  }

  /** @param {string} key @returns {number | null} */
  wholeOrNull(key) {
    return this.#value(key, "a number", null) === null ? null : this.whole(key);
  }

  /** @param {string} key @returns {unknown[]} */
  items(key) {
    return this.#value(key, "a list");
  }

  /** @param {string} key @returns {Part} */
  part(key) {
    return new Part(this.#value(key, "an object"), this.inside(key));
  }

  /** @param {string} key @returns {Part[]} */
  parts(key) {
    return this.items(key).map((one, index) => new Part(one, `${this.inside(key)}[${index}]`));
  }

  /** @param {string} key @returns {Part | null} */
  optional(key) {
    return (this.values[key] ?? null) === null ? null : this.part(key);
  }

  /**
   * @param {string} key
   * @param {readonly string[]} choices
   * @param {string} [missing]
   * @returns {string} One of them, however it is capitalised in the file.
   */
  choice(key, choices, missing) {
    const plain = (/** @type {string} */ word) => word.toLowerCase().replaceAll("_", "");
    const value = this.text(key, missing);
    const found = choices.find((one) => plain(one) === plain(value));
    if (found === undefined) throw malformed(`\`${this.inside(key)}\``, `must be one of ${choices.join(", ")}, not \`${value.slice(0, 40)}\``);
    return found;
  }

  /** @param {string} key @returns {Map<string, number>} Tokens and their ids. */
  vocabulary(key) {
    const found = new Map(Object.entries(this.#value(key, "an object")));
    for (const [token, number] of found) {
      if (!isId(number)) throw malformed(`\`${this.inside(key)}\``, `must give ids, not ${kind(number)} for \`${token.slice(0, 40)}\``);
    }
    return /** @type {Map<string, number>} */ (found);
  }

  /** @param {string} what @returns {EdgeInferError} */
  unknown(what) {
    return unsupported(`\`${this.where}\``, `the ${what} \`${this.kind.slice(0, 40)}\``);
  }
}

/** @param {unknown} value @returns {value is number} */
export function isId(value) {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) < 2 ** 32;
}

/**
 * @param {Uint8Array | string} data The file.
 * @returns {Part}
 * @throws {EdgeInferError} `bundle_error`: it is not JSON, or larger than 128 MiB.
 */
export function readDefinition(data) {
  if (data.length > MAX_BYTES) throw malformed("the file", `has ${data.length} bytes, more than ${MAX_BYTES}`);
  try {
    const text = typeof data === "string" ? data : new TextDecoder("utf-8", { fatal: true }).decode(data);
    return new Part(JSON.parse(/"Unigram"|"unk_id"/.test(text) ? withThePackagesNumbers(text) : text), "");
  } catch (error) {
    if (error instanceof EdgeInferError) throw error;
    if (error instanceof RangeError) throw malformed("the file", "is nested too deeply");
    throw new EdgeInferError(`tokenizer.json is not JSON: ${error instanceof Error ? error.message : error}`, "bundle_error", { hint: HINT, cause: error });
  }
}

/** @param {string} text JSON. @returns {string} The same with each fraction as the package reads it. */
function withThePackagesNumbers(text) {
  return text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs, (found) =>
    found.startsWith('"') || !/[.eE]/.test(found) ? found : String(asThePackageReads(found)),
  );
}

/**
 * Read a decimal number as the package's JSON reader does: see `as_the_package_reads` in `definition.py`.
 *
 * @param {string} text
 * @returns {number}
 */
export function asThePackageReads(text) {
  const [, sign, whole, fraction = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  if (whole === undefined || text.length > 1000) throw new SyntaxError(`${text.slice(0, 40)} is not a number`);
  const most = 0xffff_ffff_ffff_ffffn;
  let exponent = Math.max(-10_000, Math.min(10_000, Number(power)));
  let significand = 0n;
  let isFull = false;
  for (const digit of whole) {
    const next = significand * 10n + BigInt(digit);
    if (isFull || next > most) [isFull, exponent] = [true, exponent + 1];
    else significand = next;
  }
  for (const digit of fraction) {
    const next = significand * 10n + BigInt(digit);
    if (isFull || next > most) break;
    [significand, exponent] = [next, exponent - 1];
  }
  let value = Number(significand);
  for (; exponent < -308 && value; exponent += 308) value /= 1e308;
  if (value && exponent > 308) throw new SyntaxError(`${text.slice(0, 40)} is too large`);
  if (value) value = exponent >= 0 ? value * Number(`1e${exponent}`) : value / Number(`1e${-exponent}`);
  return sign ? -value : value;
}
