// Two small functions on vectors, as Python has them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { batchNormalize, cosineSimilarity } from "../src/vectors/similarity.js";

test("the cosine is 1 for one direction, 0 for a right angle and where a vector is zero", () => {
  assert.ok(Math.abs(cosineSimilarity([1, 2], new Float32Array([2, 4])) - 1) < 1e-12);
  assert.equal(cosineSimilarity([1, 0], [0, 3]), 0);
  assert.equal(cosineSimilarity([0, 0], [1, 1]), 0);
});

test("rows become of length 1, and a zero row stays", () => {
  assert.deepEqual(batchNormalize([[3, 4], [0, 0]]), [[0.6, 0.8], [0, 0]]);
});

test("vectors of different lengths are refused", () => {
  assert.throws(() => cosineSimilarity([1, 2], [1]), { code: "input_error", message: /2 and 1 numbers/ });
  assert.throws(() => batchNormalize([[1, 2], [1]]), { code: "input_error", message: /Vector 1 has 1 numbers/ });
});
