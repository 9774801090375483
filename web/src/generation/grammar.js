/** Answers of a form: JSON objects, and JSON by a schema. The same as `edge_infer.generation.grammar`. */

import { EdgeInferError } from "../errors.js";
import { Automaton } from "./automaton.js";
import { ANY_OBJECT, jsonGrammar } from "./json-schema.js";
import { compare } from "./vocabulary.js";

/** @typedef {import("./vocabulary.js").Vocabulary} Vocabulary */

/**
 * @param {Record<string, any>} format `{type: "text"}`, `{type: "json_object"}`, or `{type: "json_schema", schema: {...}}`;
 *   OpenAI's `{type: "json_schema", json_schema: {schema: {...}}}` is read too.
 * @param {Vocabulary} vocabulary
 * @param {Iterable<number>} ends Tokens that end an answer.
 * @returns {TokenGrammar | null} Null for any text.
 * @throws {EdgeInferError} `input_error`: it is another, or the schema cannot be kept.
 */
export function grammarOf(format, vocabulary, ends) {
  const option = { details: { option: "responseFormat" } };
  if (format.type === "text") return null;
  if (format.type === "json_object") return new TokenGrammar(ANY_OBJECT, vocabulary, ends);
  if (format.type !== "json_schema") {
    throw new EdgeInferError(`\`responseFormat\` is of the type ${JSON.stringify(format.type)}`, "input_error", {
      hint: "choose from `text`, `json_object`, `json_schema`",
      ...option,
    });
  }
  const holder = format.json_schema ?? format;
  if (holder === null || typeof holder !== "object" || !Object.hasOwn(holder, "schema")) {
    throw new EdgeInferError("`responseFormat` has no schema", "input_error", { hint: '{ type: "json_schema", schema: { type: "object" } }', ...option });
  }
  return new TokenGrammar(jsonGrammar(holder.schema), vocabulary, ends);
}

/** Which tokens may come next in an answer of a form; of one answer. */
export class TokenGrammar {
  #automaton;
  #vocabulary;
  #ends;
  #state;
  /** @type {Map<number, import("./automaton.js").State>} */
  #next = new Map();

  /** @param {import("./automaton.js").Node} root The form, over bytes. @param {Vocabulary} vocabulary @param {Iterable<number>} ends */
  constructor(root, vocabulary, ends) {
    this.#automaton = new Automaton(root);
    this.#vocabulary = vocabulary;
    this.#ends = new Set(ends);
    this.#state = this.#automaton.start;
  }

  /** @param {number} token @returns {boolean} Whether it may come next. */
  accepts(token) {
    if (this.#ends.has(token)) return this.#automaton.mayEnd(this.#state);
    const data = this.#vocabulary.bytesOf(token);
    if (data.length === 0) return false;
    const found = this.#automaton.after(this.#state, data);
    this.#next.set(token, found);
    return found.size > 0;
  }

  /** @returns {Generator<number>} All tokens that may come next: tokens that begin alike are looked at together. */
  *allowed() {
    if (this.#automaton.mayEnd(this.#state)) yield* [...this.#ends].sort((one, other) => one - other);
    const ordered = this.#vocabulary.ordered();
    const path = [this.#state];
    /** @type {Uint8Array} */
    let before = new Uint8Array();
    for (let at = 0; at < ordered.length; ) {
      const { data, token } = ordered[at];
      let shared = 0;
      const limit = Math.min(data.length, before.length, path.length - 1);
      while (shared < limit && data[shared] === before[shared]) shared += 1;
      path.length = shared + 1;
      let length = shared;
      for (; length < data.length; length++) {
        const state = this.#automaton.after(path[path.length - 1], data.subarray(length, length + 1));
        if (state.size === 0) break;
        path.push(state);
      }
      if (length === data.length) {
        if (!this.#ends.has(token)) yield token;
        at += 1;
      } else {
        // No token with this beginning fits.
        const start = data.subarray(0, length + 1);
        at += 1;
        while (at < ordered.length && compare(ordered[at].data.subarray(0, length + 1), start) === 0) at += 1;
      }
      before = data;
    }
  }

  /** @param {number} token The one that came next. @returns {boolean} Whether nothing may follow it. */
  advance(token) {
    const found = this.#next.get(token) ?? this.#automaton.after(this.#state, this.#vocabulary.bytesOf(token));
    this.#state = found;
    this.#next = new Map();
    return this.#automaton.mustEnd(found);
  }
}
