/** Large weights are taken out of a file, the engine reads them from it, and the answers stay. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { weightsApart } from "../src/engines/onnx-weights.js";
import { startOrtEngine } from "../src/engines/ort.js";
import { initializer, model, node } from "./onnx.js";

const engine = await startOrtEngine({ base: new URL("../node_modules/onnxruntime-web/dist/", import.meta.url) });

/** @param {number} size @param {number} [count] A model that adds so many constants of this size, one after the other. */
function sum(size, count = 2) {
  const names = Array.from({ length: count }, (_, i) => `w${i}`);
  const weights = names.map((name, k) => initializer(name, "float32", [size], Float32Array.from({ length: size }, (_, i) => Math.sin(i + k))));
  const nodes = names.map((name, i) => node("Add", [i ? `s${i - 1}` : "x", name], [i === count - 1 ? "y" : `s${i}`]));
  const spec = (/** @type {string} */ name) => ({ name, dtype: /** @type {const} */ ("float32"), shape: [size] });
  return model([spec("x")], [spec("y")], nodes, weights);
}

/** @param {Uint8Array} bytes @param {number} size @param {boolean} [isReserved] */
function answer(bytes, size, isReserved = false) {
  if (isReserved) engine.reserve(bytes.length).set(bytes);
  const session = engine.createSession(isReserved ? /** @type {Uint8Array} */ (engine.reserved) : bytes);
  const { y } = session.run({ x: Float32Array.from({ length: size }, (_, i) => i / 7) });
  session.close();
  return [.../** @type {any} */ (y).data];
}

test("the engine gives the same answer, wherever the file lies", () => {
  const size = 20_000;
  const bytes = sum(size);
  const apart = weightsApart(bytes);
  assert.ok(apart && apart.graph.length < 1000, `${apart?.graph.length} bytes are left`);
  const expected = Array.from({ length: size }, (_, i) => Math.fround(Math.fround(Math.fround(i / 7) + Math.fround(Math.sin(i))) + Math.fround(Math.sin(i + 1))));

  assert.deepEqual(answer(bytes, size), expected);
  assert.deepEqual(answer(bytes, size, true), expected);
});

test("a model of 32 MB takes less than twice its size of the engine's memory", async () => {
  const own = await startOrtEngine({ base: new URL("../node_modules/onnxruntime-web/dist/", import.meta.url) });
  const before = own.heap.module.HEAPU8.length;
  const bytes = sum(2 ** 22);

  own.createSession(bytes).close();

  const grown = own.heap.module.HEAPU8.length - before;
  assert.ok(grown < 1.9 * bytes.length, `${(grown / bytes.length).toFixed(2)} times`);
});

test("small weights stay, and a file of none is left alone", () => {
  assert.equal(weightsApart(sum(100)), undefined);
  assert.ok(weightsApart(sum(100), 400));
  assert.equal(weightsApart(sum(100), 401), undefined);
});

test("what is no model is left to the engine, which says what is wrong", () => {
  const whole = sum(20_000);
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647);
  for (let i = 0; i < 300; i++) {
    const bytes = whole.slice(0, i % 3 ? whole.length : random() % whole.length);
    for (let k = 0; k < i % 7; k++) bytes[random() % 400] = random() & 255;
    const apart = weightsApart(bytes);
    assert.ok(apart === undefined || apart.graph.length <= bytes.length);
  }
  for (const bytes of [[], [0], [0x3a], [0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], [0x3b, 1]]) {
    assert.equal(weightsApart(Uint8Array.from(bytes), 0), undefined);
  }
  assert.throws(() => engine.createSession(whole.subarray(0, whole.length - 9)), { code: "unsupported_model" });
});
