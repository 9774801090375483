/** Answers are those of Python (`tests/support/generation/answer_vectors.py`), and a generation can be left at any token. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { EdgeInferError } from "../src/errors.js";
import { definitionOf } from "../src/generation/definition.js";
import { parseJson } from "../src/generation/json-numbers.js";
import { GenerationRequests } from "../src/generation/requests.js";
import { Stops } from "../src/generation/stops.js";
import { ChatTemplate, loadJinja } from "../src/generation/template.js";
import { TextModel } from "../src/generation/text-model.js";
import { Generator } from "../src/page/generator.js";
import { Tokenizer } from "../src/tasks/text/tokenizer.js";
import { FakeDecoder } from "./fake-decoder.js";

const MODELS = parseJson(readFileSync(new URL("../../tests/support/generation/answer_vectors.json", import.meta.url), "utf8"));
const jinja = await loadJinja("");

/** @param {any} options As Python names them. */
function inCamelCase(options) {
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [name.replaceAll(/_(.)/g, (_, letter) => letter.toUpperCase()), value]));
}

/**
 * @param {any} model One of the vectors.
 * @param {any} [change] Of what the bundle says.
 */
async function opened({ tokenizer, generate, template }, change = {}) {
  const definition = definitionOf(/** @type {any} */ ({ name: "fake", generate: { ...plain(generate), ...change } }));
  const decoder = new FakeDecoder(300, 160);
  const openTemplate = template && (async () => new ChatTemplate(jinja, template, definition.specialTokens));
  const requests = new GenerationRequests(async () => {
    const model = new TextModel(decoder, new Tokenizer(JSON.stringify(tokenizer)), definition, openTemplate, "fake");
    return { model, facts: /** @type {any} */ ({ model: "fake" }) };
  });
  await requests.request({ kind: "open-generation", asked: /** @type {any} */ ({}) });
  return { decoder, generator: new Generator(requests, /** @type {any} */ ({}), "own") };
}

/** @param {any} value @returns {any} It with floats as plain numbers. */
const plain = (value) => JSON.parse(JSON.stringify(value));

test("all answers of the vectors are Python's: tokens, text, pieces, logarithms and what was cached", async () => {
  for (const model of MODELS) {
    const { generator } = await opened(model);
    for (const { prompt, messages, tools, options, ...expected } of model.answers) {
      const seed = typeof options.seed === "bigint" ? options.seed : undefined;
      const asked = { ...inCamelCase(JSON.parse(JSON.stringify({ ...options, seed: Number(options.seed ?? 0) }))), seed: seed ?? options.seed };
      const stream = generator.stream(messages ?? prompt, { ...asked, tools: tools && parseJson(tools) });
      const pieces = [];
      for await (const piece of stream) pieces.push(piece);

      const { text, tokens, finishReason, usage, logprobs } = stream.completion;
      const what = `${model.kind}: ${JSON.stringify(prompt ?? messages)}`;
      assert.deepEqual(tokens, expected.tokens, what);
      assert.equal(text, expected.text, what);
      assert.equal(pieces.join(""), expected.text, what);
      assert.equal(pieces.length, expected.pieces, what);
      assert.equal(finishReason, expected.finish_reason, what);
      assert.deepEqual([usage.promptTokens, usage.completionTokens, usage.cachedTokens], expected.usage, what);
      const listed = logprobs && logprobs.map((one) => [one.token, one.text, one.logprob, one.top.map((top) => [top.token, top.text, top.logprob])]);
      assert.deepEqual(listed, expected.logprobs && plain(expected.logprobs), what);
      if (messages) assert.equal(await generator.render(messages, { tools: tools && parseJson(tools) }), expected.rendered);
    }
  }
});

test("a loop that is left ends the generation, and the next one finds its tokens in the cache", async () => {
  const { generator, decoder } = await opened(MODELS[0]);
  const stream = generator.stream("Hello", { seed: 1, maxTokens: 100 });
  for await (const piece of stream) if (piece) break;

  const { finishReason, usage } = stream.completion;
  const before = decoder.runs.length;
  await generator.tokenize("a");
  const { usage: after } = await generator.complete("Hello there", { maxTokens: 1, seed: 1 });

  assert.equal(finishReason, "cancelled");
  assert.ok(usage.completionTokens < 5 && before <= usage.completionTokens + 1, `${before} runs`);
  assert.equal(after.cachedTokens, (await generator.tokenize("Hello")).length);
  assert.equal(generator.report().promptTokens, usage.promptTokens + after.promptTokens);
});

test("a signal ends a generation within one token, also while the prompt is computed, and one that waits", async () => {
  const { generator, decoder } = await opened(MODELS[0]);
  const controller = new AbortController();
  const stopped = new Error("enough");
  const long = generator.complete("x".repeat(150), { signal: controller.signal, seed: 1 });
  const waiting = generator.complete("y", { signal: controller.signal, seed: 1 });
  for (const one of [long, waiting]) one.catch(() => {});
  while (decoder.runs.length === 0) await new Promise((resolve) => setImmediate(resolve));
  controller.abort(stopped);

  await assert.rejects(long, stopped);
  await assert.rejects(waiting, stopped);
  assert.ok(decoder.runs.length === 1, `${decoder.runs}`);
  assert.ok(decoder.runs.every((rows) => rows <= 128));
  assert.equal((await generator.complete("y", { maxTokens: 2, seed: 1 })).tokens.length, 2);
});

test("what is wrong is said before anything is computed", async () => {
  const { generator, decoder } = await opened(MODELS[0]);
  const refused = (/** @type {() => Promise<any>} */ ask, /** @type {object} */ error) => assert.rejects(ask, error);

  await refused(() => generator.complete("x", { temperature: -1 }), { code: "input_error", message: /temperature/ });
  await refused(() => generator.complete("x", /** @type {any} */ ({ max_tokens: 3 })), { code: "input_error", hint: "did you mean `maxTokens`?" });
  await refused(() => generator.complete("x".repeat(600)), { code: "input_error", message: /600 tokens.*160/ });
  await refused(() => generator.complete(""), { code: "input_error", message: /empty/ });
  await refused(() => generator.complete(/** @type {any} */ ([])), { code: "input_error" });
  await refused(() => generator.chat(/** @type {any} */ ("x")), { code: "input_error" });
  await refused(() => generator.chat([/** @type {any} */ ("x")]), { code: "input_error", message: /no message/ });
  await refused(() => generator.chat([{ role: "user", content: [{ type: "image" }] }]), { code: "input_error", message: /only texts/ });
  await refused(() => generator.complete("x", { tools: [{}] }), { code: "input_error", message: /tools/ });
  await refused(() => generator.complete("x", { logitBias: { 300: 1 } }), { code: "input_error", message: /300/ });
  await refused(() => generator.complete("x", { stop: Array.from({ length: 100 }, (_, i) => String(i).repeat(700).slice(0, 1000)) }), { code: "input_error" });
  assert.deepEqual(decoder.runs, []);
  const without = await opened({ ...MODELS[0], template: null });
  await refused(() => without.generator.chat([{ role: "user", content: "x" }]), { code: "unsupported", message: /no chat template/ });
});

test("a generator that was disposed of says so, and has given its memory back", async () => {
  const { generator, decoder } = await opened(MODELS[0]);
  await generator.dispose();
  await generator.dispose();

  assert.ok(decoder.isClosed);
  assert.throws(() => generator.stream("x"), { code: "input_error", message: /closed/ });
});

test("a bundle that says something else is refused", () => {
  const right = plain(MODELS[0].generate);
  const definition = (/** @type {any} */ generate) => definitionOf(/** @type {any} */ ({ name: "x", generate }));

  assert.throws(() => definition(undefined), { code: "unsupported" });
  assert.throws(() => definition({ ...right, kind: "decoder/2" }), { code: "unsupported", message: /decoder\/2/ });
  for (const change of [{ eos: ["x"] }, { context: "1" }, { vocab_size: 1.5 }, { tokenizer: null }, { defaults: [] }, { add_bos: 1 }]) {
    assert.throws(() => definition({ ...right, ...change }), { code: "manifest_error", message: new RegExp(Object.keys(change)[0]) });
  }
  assert.deepEqual(definition({ ...right, eos: 5 }).eos, [5]);
});

test("stop texts are found across pieces, the longest first, and what may become one is held back", () => {
  const read = (/** @type {string[]} */ stops, /** @type {string[]} */ pieces) => {
    const found = new Stops(stops);
    const said = [];
    for (const piece of pieces) {
      const { text, isStopped } = found.add(piece);
      said.push(text);
      if (isStopped) return [...said, "STOP"];
    }
    return [...said, found.flush()];
  };

  assert.deepEqual(read(["END"], ["abcE", "N", "x", "EN", "D rest"]), ["abc", "", "ENx", "", "", "STOP"]);
  assert.deepEqual(read(["bc", "abcd"], ["ab", "ce"]), ["", "a", "STOP"]);
  assert.deepEqual(read(["\u{1F600}!"], ["a\u{1F600}", "?"]), ["a", "\u{1F600}?", ""]);
  assert.deepEqual(read(["aa"], ["a", "b", "a"]), ["", "ab", "", "a"]);
  assert.deepEqual(read([], ["a", ""]), ["a", "", ""]);
  assert.throws(() => new Stops(["a".repeat(65_537)]), EdgeInferError);
});
