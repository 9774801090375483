/** Draws are those of Python: the same tokens, and the same bits of every number (`tests/support/generation`). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { exp, log } from "../src/generation/exact-math.js";
import { optionsOf } from "../src/generation/options.js";
import { RandomNumbers } from "../src/generation/random-numbers.js";
import { Sampler } from "../src/generation/sampler.js";

const VECTORS = JSON.parse(readFileSync(new URL("../../tests/support/generation/sampling_vectors.json", import.meta.url), "utf8"));

/** @param {Record<string, any>} options As Python names them. */
function inCamelCase(options) {
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [name.replaceAll(/_(.)/g, (_, letter) => letter.toUpperCase()), value]));
}

/** @param {Float32Array} logits @returns {import("../src/generation/sampler.js").Row} */
function rowOf(logits) {
  const value = (/** @type {number} */ token) => (Number.isNaN(logits[token]) ? Infinity : logits[token]);
  const order = (/** @type {number} */ one, /** @type {number} */ other) => value(other) - value(one) || one - other;
  return {
    logits: () => logits,
    top: (count) => Array.from(logits.keys()).sort(order).slice(0, count).map((token) => [token, logits[token]]),
  };
}

/** @param {number} seed @param {number} size @param {number} scale @param {number} step */
function made(seed, size, scale, step) {
  const random = new RandomNumbers(seed);
  return Float32Array.from({ length: size }, () => {
    const x = 2 * random.uniform() - 1;
    return step ? Math.floor((x * scale) / step + 0.5) * step : scale * x * x * x;
  });
}

/** @param {number} divisor @param {number} size @returns {import("../src/generation/sampler.js").Grammar} */
function refusing(divisor, size) {
  const accepts = (/** @type {number} */ token) => token % divisor !== 0;
  return { accepts, allowed: () => Array.from({ length: size }, (_, i) => i).filter(accepts), advance: () => false };
}

test("random numbers, exponentials and logarithms are Python's", () => {
  for (const { seed, uniforms } of VECTORS.random) {
    const random = new RandomNumbers(seed);
    assert.deepEqual(uniforms.map(() => random.uniform()), uniforms);
  }
  for (const [x, y] of VECTORS.exp) assert.equal(exp(x), y);
  for (const [x, y] of VECTORS.log) assert.equal(log(x), y);
});

test("all draws of the vectors are Python's", () => {
  assert.ok(VECTORS.cases.length > 40);
  for (const { options, seed, prompt, logits, refused_divisor: divisor, count, draws } of VECTORS.cases) {
    const sampler = new Sampler(optionsOf({ ...inCamelCase(options), seed, logprobs: 2 }), prompt, logits.size);
    const found = Array.from({ length: count }, (_, t) =>
      sampler.choose(rowOf(made(logits.seed + t, logits.size, logits.scale, logits.step)), divisor ? refusing(divisor, logits.size) : null),
    );
    assert.deepEqual(found, draws, JSON.stringify(options));
  }
});

test("logits that are not numbers, and tokens that are all forbidden, are refused", () => {
  const sampler = () => new Sampler(optionsOf({ seed: 1 }), [], 3);

  assert.throws(() => sampler().choose(rowOf(Float32Array.of(0, NaN, 1))), { code: "execution_error", message: /NaN/ });
  assert.throws(() => sampler().choose(rowOf(Float32Array.of(0, 2, 1)), { accepts: () => false, allowed: () => [], advance: () => false }), { code: "execution_error" });
  assert.throws(() => new Sampler(optionsOf({ logitBias: { 3: 1 } }), [], 3), { code: "input_error", message: /token 3/ });
});

test("options are Python's, in camelCase, and each wrong one is named", () => {
  const { seed, temperature, topK, topP, minP, maxTokens } = optionsOf({ topK: null, topP: undefined }, { top_k: 7, other: 1 });

  const { defaults } = VECTORS;
  assert.deepEqual({ temperature, topK, topP, minP, maxTokens }, inCamelCase({ ...defaults, top_k: 7 }));
  assert.ok(Number.isSafeInteger(seed));
  assert.equal(optionsOf({ seed: 2n ** 64n - 1n }).seed, 2n ** 64n - 1n);
  assert.deepEqual(optionsOf({ stop: "a", logprobs: true, logitBias: { 3: -1 } }).logitBias, new Map([[3, -1]]));
  for (const wrong of [
    { temperature: -1 },
    { temperature: NaN },
    { topP: 1.5 },
    { minP: "0.1" },
    { topK: 1.5 },
    { maxTokens: 0 },
    { seed: 0.5 },
    { seed: 2n ** 64n },
    { stop: "" },
    { stop: 3 },
    { stop: new Array(1025).fill("a") },
    { stop: "a".repeat(1025) },
    { logprobs: 21 },
    { logitBias: { x: 1 } },
    { logitBias: { 1: 1e9 } },
    { logitBias: [] },
    { responseFormat: "json" },
    { top_k: 3 },
  ]) {
    const [name] = Object.keys(wrong);
    assert.throws(() => optionsOf(wrong), (/** @type {any} */ error) => error.code === "input_error" && error.message.includes(name), JSON.stringify(Object.keys(wrong)));
  }
  assert.throws(() => optionsOf({ top_k: 3 }), { hint: "did you mean `topK`?" });
});
