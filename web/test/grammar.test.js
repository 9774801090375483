/** Answers of a form: what an automaton takes, which schemas are refused, and that the trie finds what single tokens say. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Automaton } from "../src/generation/automaton.js";
import { TokenGrammar, grammarOf } from "../src/generation/grammar.js";
import { ANY_OBJECT, jsonGrammar } from "../src/generation/json-schema.js";

const encoder = new TextEncoder();
const takes = (/** @type {any} */ schema, /** @type {string} */ text) => {
  const automaton = new Automaton(jsonGrammar(schema));
  return automaton.mayEnd(automaton.after(automaton.start, encoder.encode(text)));
};
/** A vocabulary of these texts. @param {string[]} texts @returns {any} */
const vocabularyOf = (texts) => {
  const known = texts.map((text) => encoder.encode(text));
  const order = (/** @type {{data: Uint8Array, token: number}} */ one, /** @type {{data: Uint8Array, token: number}} */ other) =>
    Buffer.compare(one.data, other.data) || one.token - other.token;
  return { bytesOf: (/** @type {number} */ token) => known[token], ordered: () => known.map((data, token) => ({ data, token })).filter(({ data }) => data.length > 0).sort(order) };
};

test("JSON is taken as a schema says, and nothing else", () => {
  const right = ["{}", '{"a":1}', '{ "a" : [1, -2.5e+7, true, null, {"b": "é\\u00e9\\n"}] , "c":"x"}', "\n  {}"];
  const wrong = ["", "[]", '{"a"}', '{"a":01}', '{"a":1,}', '{"a":"\n"}', '{"a":.5}', "{}{}", '{"a":tru}', "   {}"];
  for (const text of right) assert.ok(takes({ type: "object" }, text), text);
  for (const text of wrong) assert.ok(!takes({ type: "object" }, text), text);

  const tree = { $ref: "#/$defs/t", $defs: { t: { type: "object", properties: { t: { $ref: "#/$defs/t" } }, additionalProperties: false } } };
  assert.ok(takes(tree, '{"t":{"t":{}}}') && !takes(tree, '{"t":1}'));
  const list = { type: "array", items: { enum: ["a", 2, 1.5] }, minItems: 1, maxItems: 2 };
  assert.ok(takes(list, '["a", 1.5]') && !takes(list, "[]") && !takes(list, "[2,2,2]"));
  const text = { type: "string", minLength: 2, maxLength: 3 };
  assert.ok(takes(text, '"é\\n"') && takes(text, '"𩇹bc"') && !takes(text, '"a"') && !takes(text, '"abcd"'));
  const person = { properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["age"] };
  assert.ok(takes(person, '{"age":3}') && takes(person, '{"name":"","age":-3}') && !takes(person, '{"name":""}') && !takes(person, '{"age":3,"name":""}'));
  assert.ok(takes({ anyOf: [{ const: "x" }, { type: ["null", "boolean"] }] }, "false"));
});

test("a schema that cannot be kept is refused by name", () => {
  const deep = Array.from({ length: 80 }).reduce((/** @type {any} */ inner) => ({ type: "array", items: inner }), {});
  /** @type {[any, RegExp][]} */
  const refused = [
    [{ type: "string", pattern: "a" }, /`pattern`/],
    [{ type: "number", minimum: 1 }, /`minimum`/],
    [{ type: "text" }, /type/],
    [{ $ref: "other.json" }, /other/],
    [{ $ref: "#/$defs/x" }, /does not have/],
    [{ $ref: "#" }, /without end/],
    [{ enum: [] }, /enum/],
    [{ allOf: [{ type: "string" }, { type: "string" }] }, /allOf/],
    [{ minLength: 3, maxLength: 2 }, /above/],
    [{ minItems: -1 }, /minItems/],
    [{ type: "object", required: ["x"], additionalProperties: false }, /requires `x`/],
    [{ const: 1, minLength: 1 }, /beside/],
    [{ description: "x".repeat(70_000) }, /70/],
    [deep, /nested/],
    [3, /expected an object/],
    [null, /expected an object/],
  ];
  for (const [schema, message] of refused) assert.throws(() => jsonGrammar(schema), { code: "input_error", message }, JSON.stringify(schema).slice(0, 80));
  const ask = (/** @type {any} */ format) => grammarOf(format, vocabularyOf([]), []);
  assert.throws(() => ask({ type: "xml" }), { code: "input_error", hint: /json_object/ });
  assert.throws(() => ask({ type: "json_schema" }), { code: "input_error", message: /no schema/ });
  assert.equal(ask({ type: "text" }), null);
  assert.ok(ask({ type: "json_schema", json_schema: { schema: true } }));
});

test("a schema of alternatives that multiply is given up where its answers can be read in too many ways", () => {
  const many = { anyOf: Array.from({ length: 40 }, (_, i) => ({ properties: { a: { type: "array", maxItems: i + 1 } } })) };
  const nested = { type: "array", items: { type: "array", items: { type: "array", items: many } } };
  const automaton = new Automaton(jsonGrammar(nested));

  assert.throws(() => automaton.after(automaton.start, encoder.encode('[[[{"a":[1,')), { code: "execution_error", message: /512 ways/ });
});

test("the tokens that may come next are those that are accepted one by one", () => {
  const texts = ["", "{", "}", '{"', '"', '":', "a", "ab", "b", ' {"a', "\n", "\n\n", '"}', "1", "12", "é", ",", "[", "]]", "<end>"];
  const grammar = new TokenGrammar(ANY_OBJECT, vocabularyOf(texts), [19]);
  for (const token of [3, 7, 5, 13, 2]) {
    const alone = texts.map((_, one) => one).filter((one) => grammar.accepts(one));
    assert.deepEqual([...grammar.allowed()].sort((one, other) => one - other), alone);
    assert.ok(alone.includes(token), `${texts[token]} of ${alone}`);
    assert.equal(grammar.advance(token), token === 2);
  }
  assert.deepEqual([...grammar.allowed()], [19]);
});
