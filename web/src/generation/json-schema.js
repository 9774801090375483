/**
 * JSON Schema to a grammar of bytes: the texts that the automaton accepts are valid by the schema. The same as
 * `edge_infer.generation.json_schema`.
 *
 * Objects are written with the properties that the schema names, in its order, so not every valid text is accepted. A
 * keyword that the grammar cannot keep is refused by name; annotations such as `description` and `format` are passed over.
 */

import { EdgeInferError } from "../errors.js";
import { listed } from "../tasks/words.js";
import { Automaton, Bytes, Choice, Later, Repeat, Series, literal } from "./automaton.js";
import { floatText } from "./json-numbers.js";

/** @typedef {import("./automaton.js").Node} Node */
/** @typedef {Record<string, any>} Schema */

const [MAX_BYTES, MAX_DEPTH, MAX_COUNT] = [65_536, 64, 65_536];
const ANNOTATIONS = new Set([
  ...["$anchor", "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "default", "definitions"],
  ...["deprecated", "description", "discriminator", "example", "examples", "format", "readOnly", "strict", "title", "writeOnly"],
]);
/** @type {Record<string, string[]>} */
const BY_TYPE = {
  object: ["properties", "required", "additionalProperties"],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  string: ["minLength", "maxLength"],
};
const TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"];

const span = (/** @type {number} */ first, /** @type {number} */ end) => Array.from({ length: end - first }, (_, i) => first + i);
const oneOf = (/** @type {string} */ text) => new Bytes(new TextEncoder().encode(text));
const inside = (/** @type {number} */ first, /** @type {number} */ end) => new Bytes(span(first, end));
const [HEX, TAIL] = [oneOf("0123456789abcdefABCDEF"), inside(0x80, 0xc0)];
/** One character of a string: JSON's escapes, and the well-formed sequences of Unicode's table 3-7. */
const CHARACTER = new Choice(
  new Bytes(span(0x20, 0x80).filter((byte) => byte !== 0x22 && byte !== 0x5c)),
  new Series(oneOf("\\"), new Choice(oneOf('"\\/bfnrt'), new Series(oneOf("u"), HEX, HEX, HEX, HEX))),
  new Series(inside(0xc2, 0xe0), TAIL),
  new Series(inside(0xe0, 0xe1), inside(0xa0, 0xc0), TAIL),
  new Series(new Bytes([...span(0xe1, 0xed), 0xee, 0xef]), TAIL, TAIL),
  new Series(inside(0xed, 0xee), inside(0x80, 0xa0), TAIL),
  new Series(inside(0xf0, 0xf1), inside(0x90, 0xc0), TAIL, TAIL),
  new Series(inside(0xf1, 0xf4), TAIL, TAIL, TAIL),
  new Series(inside(0xf4, 0xf5), inside(0x80, 0x90), TAIL, TAIL),
);
const QUOTE = oneOf('"');
/** A space, or a new line with an indent: a model can write no endless space. */
const SPACE = new Choice(new Series(), oneOf(" "), new Series(oneOf("\n"), new Repeat(oneOf(" \t"), 0, 20)));
const DIGIT = oneOf("0123456789");
const INTEGER = new Series(new Repeat(oneOf("-"), 0, 1), new Choice(oneOf("0"), new Series(oneOf("123456789"), new Repeat(DIGIT))));
const NUMBER = new Series(
  INTEGER,
  new Repeat(new Series(oneOf("."), new Repeat(DIGIT, 1)), 0, 1),
  new Repeat(new Series(oneOf("eE"), new Repeat(oneOf("+-"), 0, 1), new Repeat(DIGIT, 1)), 0, 1),
);
const STRING = new Series(QUOTE, new Repeat(CHARACTER), QUOTE);
const COMMA = new Series(SPACE, oneOf(","), SPACE);
/** @type {Node} */
const ANY = new Later(() => new Choice(STRING, NUMBER, literal("true"), literal("false"), literal("null"), ANY_OBJECT, list(ANY)));
/** Any JSON object. @type {Node} */
export const ANY_OBJECT = new Later(() => map(ANY));

/** @param {Node} value @returns {Node} */
function map(value) {
  const member = new Series(STRING, SPACE, oneOf(":"), SPACE, value);
  return enclosed("{", new Repeat(new Series(member, new Repeat(new Series(COMMA, member))), 0, 1), "}");
}

/** @param {Node} item @param {number} [least] @param {number} [most] @returns {Node} */
function list(item, least = 0, most = Infinity) {
  if (most === 0) return enclosed("[", new Series(), "]");
  const more = new Repeat(new Series(COMMA, item), Math.max(least - 1, 0), most - 1);
  return enclosed("[", new Repeat(new Series(item, more), Math.min(least, 1), 1), "]");
}

/** @param {string} begin @param {Node} inner @param {string} end @returns {Node} */
function enclosed(begin, inner, end) {
  return new Series(oneOf(begin), SPACE, inner, SPACE, oneOf(end));
}

/**
 * @param {any} schema A JSON Schema: an object, or true for any value.
 * @returns {Node}
 * @throws {EdgeInferError} `input_error`: it is too large, is no schema, or has a keyword that the grammar cannot keep.
 */
export function jsonGrammar(schema) {
  let size;
  try {
    size = JSON.stringify(schema)?.length ?? 0;
  } catch (error) {
    throw refused(`is not JSON: ${error}`);
  }
  if (size > MAX_BYTES) throw refused(`has ${size} characters, at most ${MAX_BYTES} are read`);
  const root = new Schemas(schema).root();
  if (new Automaton(root).start.size === 0) throw refused("refers to itself without end, so that no text is valid by it");
  return new Series(SPACE, root);
}

/** @param {string} what @param {string} [hint] */
function refused(what, hint) {
  return new EdgeInferError(`the schema ${what}`, "input_error", { hint, details: { option: "responseFormat" } });
}

/** Makes the grammars of the parts of a schema. */
class Schemas {
  #whole;
  /** @type {Map<string, Node>} */
  #named = new Map();

  /** @param {any} schema */
  constructor(schema) {
    this.#whole = schema;
  }

  root() {
    return this.#of(this.#whole, "#", 0);
  }

  /** @param {any} schema @param {string} where @param {number} depth @returns {Node} */
  #of(schema, where, depth) {
    if (depth > MAX_DEPTH) throw refused(`is nested more than ${MAX_DEPTH} deep at \`${where.slice(0, 80)}\``);
    if (schema === true || (isObject(schema) && Object.keys(schema).length === 0)) return ANY;
    if (!isObject(schema)) throw refused(`has ${shown(schema)} at \`${where}\`, expected an object`);
    const asserted = Object.keys(schema).filter((keyword) => !ANNOTATIONS.has(keyword));
    for (const keyword of ["$ref", "enum", "const", "anyOf", "oneOf", "allOf"]) {
      if (!Object.hasOwn(schema, keyword)) continue;
      const others = asserted.filter((one) => one !== "type" && one !== keyword).sort();
      if (others.length > 0) throw refused(`has ${listed(others)} beside \`${keyword}\` at \`${where}\`, which is not supported`);
      if (keyword === "$ref") return this.#reference(schema.$ref, where, depth);
      if (keyword === "enum") return values(schema.enum, where);
      if (keyword === "const") return values([schema.const], where);
      return this.#some(schema[keyword], keyword, where, depth);
    }
    return this.#typed(schema, asserted, where, depth);
  }

  /** @param {Schema} schema @param {string[]} asserted @param {string} where @param {number} depth @returns {Node} */
  #typed(schema, asserted, where, depth) {
    let types = schema.type;
    if (types === undefined || types === null) {
      types = Object.keys(BY_TYPE).filter((kind) => BY_TYPE[kind].some((name) => asserted.includes(name)));
      if (types.length === 0) types = TYPES;
    }
    if (typeof types === "string") types = [types];
    if (!Array.isArray(types) || types.length === 0 || !types.every((one) => TYPES.includes(one))) {
      throw refused(`has the type ${shown(types)} at \`${where}\``, `choose from ${listed(TYPES)}`);
    }
    const known = ["type", ...types.flatMap((one) => BY_TYPE[one] ?? [])];
    const unknown = asserted.filter((one) => !known.includes(one)).sort();
    if (unknown.length > 0) throw refused(`has ${listed(unknown)} at \`${where}\`, which is not supported`);
    const parts = types.map((one) => this.#ofType(one, schema, where, depth));
    return parts.length === 1 ? parts[0] : new Choice(...parts);
  }

  /** @param {string} kind @param {Schema} schema @param {string} where @param {number} depth @returns {Node} */
  #ofType(kind, schema, where, depth) {
    switch (kind) {
      case "object":
        return this.#object(schema, where, depth);
      case "array":
        return this.#array(schema, where, depth);
      case "string":
        return new Series(QUOTE, new Repeat(CHARACTER, ...range(schema, "minLength", "maxLength", where)), QUOTE);
      case "boolean":
        return new Choice(literal("true"), literal("false"));
      case "number":
        return NUMBER;
      case "integer":
        return INTEGER;
      default:
        return literal("null");
    }
  }

  /** @param {Schema} schema @param {string} where @param {number} depth @returns {Node} */
  #array(schema, where, depth) {
    const [least, most] = range(schema, "minItems", "maxItems", where);
    if ("prefixItems" in schema) throw refused(`has \`prefixItems\` at \`${where}\`, which is not supported`, "use `items`");
    if (!("items" in schema)) return list(ANY, least, most);
    if (schema.items === false) {
      if (least > 0) throw refused(`allows no items at \`${where}\`, and wants ${least}`);
      return list(ANY, 0, 0);
    }
    return list(this.#of(schema.items, `${where}/items`, depth + 1), least, most);
  }

  /** @param {Schema} schema @param {string} where @param {number} depth @returns {Node} */
  #object(schema, where, depth) {
    const { properties = {}, required = [], additionalProperties: more = true } = schema;
    if (!isObject(properties)) throw refused(`has properties at \`${where}\` that are not an object`);
    if (!Array.isArray(required) || !required.every((one) => typeof one === "string")) {
      throw refused(`has \`required\` at \`${where}\` that is not a list of names`);
    }
    const others = required.filter((name) => !Object.hasOwn(properties, name));
    if (others.length > 0 && more === false) throw refused(`requires ${listed(others)} at \`${where}\`, which its properties lack`);
    /** @type {Map<string, any>} */
    const named = new Map([...Object.entries(properties), ...others.map((name) => /** @type {[string, any]} */ ([name, more]))]);
    if (named.size === 0) {
      return more === false ? enclosed("{", new Series(), "}") : map(this.#of(more, `${where}/additionalProperties`, depth + 1));
    }
    const members = [...named].map(([name, value]) => {
      const made = this.#of(value, `${where}/properties/${name}`, depth + 1);
      return { member: new Series(literal(JSON.stringify(name)), SPACE, oneOf(":"), SPACE, made), isRequired: required.includes(name) };
    });
    // From the last property on: what may follow where none was written yet, and where one was.
    /** @type {Node} */
    let first = new Series();
    /** @type {Node} */
    let later = new Series();
    for (const { member, isRequired } of members.reverse()) {
      const rest = new Series(member, later);
      first = isRequired ? rest : new Choice(rest, first);
      later = isRequired ? new Series(COMMA, rest) : new Choice(new Series(COMMA, rest), later);
    }
    return enclosed("{", first, "}");
  }

  /** @param {any} schemas @param {string} keyword @param {string} where @param {number} depth @returns {Node} */
  #some(schemas, keyword, where, depth) {
    if (!Array.isArray(schemas) || schemas.length === 0) throw refused(`has \`${keyword}\` at \`${where}\` that is not a list of schemas`);
    if (keyword === "allOf" && schemas.length > 1) {
      throw refused(`has several schemas in \`allOf\` at \`${where}\`, which is not supported`, "write them as one");
    }
    return new Choice(...schemas.map((one, i) => this.#of(one, `${where}/${keyword}/${i}`, depth + 1)));
  }

  /** @param {any} name @param {string} where @param {number} depth @returns {Node} */
  #reference(name, where, depth) {
    if (typeof name !== "string" || !(name === "#" || name.startsWith("#/"))) {
      throw refused(`refers to ${shown(name)} at \`${where}\``, 'only "#/..." of the same schema is read');
    }
    const known = this.#named.get(name);
    if (known) return known;
    let found = this.#whole;
    for (const step of name.split("/").slice(1)) {
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      if (!isObject(found) || !Object.hasOwn(found, key)) throw refused(`refers to \`${name.slice(0, 60)}\` at \`${where}\`, which it does not have`);
      found = found[key];
    }
    /** @type {Node[]} */
    const made = [];
    const later = new Later(() => made[0]);
    this.#named.set(name, later);
    made.push(this.#of(found, name, depth + 1));
    return later;
  }
}

/** @param {Schema} schema @param {string} low @param {string} high @param {string} where @returns {[number, number]} */
function range(schema, low, high, where) {
  const [least, most] = [schema[low] ?? 0, schema[high] ?? Infinity];
  for (const [name, value] of [[low, least], [high, most]]) {
    const fits = value === Infinity || (Number.isInteger(value) && value >= 0 && value <= MAX_COUNT);
    if (!fits) throw refused(`has ${shown(value)} for \`${name}\` at \`${where}\`, expected 0 to ${MAX_COUNT}`);
  }
  if (most < least) throw refused(`has \`${low}\` above \`${high}\` at \`${where}\``);
  return [least, most];
}

/** @param {any} found @param {string} where @returns {Node} One of some values, written without spaces. */
function values(found, where) {
  if (!Array.isArray(found) || found.length === 0) throw refused(`has an \`enum\` at \`${where}\` that is not a list of values`);
  return new Choice(...Array.from(new Set(found.map(written)), literal));
}

/** @param {any} value @returns {string} Its JSON, with numbers as Python writes them. */
function written(value) {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Number || (typeof value === "number" && !Number.isInteger(value))) return floatText(Number(value));
  if (Array.isArray(value)) return `[${value.map(written).join(",")}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}:${written(one)}`).join(",")}}`;
  return JSON.stringify(value);
}

/** @param {any} value @returns {value is Schema} */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** @param {any} value */
function shown(value) {
  return (JSON.stringify(value) ?? String(value)).slice(0, 60);
}
