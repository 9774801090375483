/** Golden examples of large tensors: the values of random inputs, and the elements that are kept of large outputs. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { draw } from "../src/bundle/drawn.js";
import { readExamples, requireGolden } from "../src/bundle/golden.js";
import { bytesOver } from "../src/tensors.js";

// The same stand in tests/runtime/test_golden_parts.py.
const DIGESTS = {
  float32: "97a01c59d6691e83508bd4dd89d6796f16ab22df5265fa585e71996174194001",
  float16: "5dab533f5f1902ad4295e562170aac78ba4fa009b26aa61a55d1db24125633eb",
  float64: "f9b3f93ccd61fe5af6f92698871e6344085aa59319ea8d6388abb9077053ad14",
  int8: "732b4dd5c3bcc2ce2f42e02efe1f77e4ed0be75c9529144b325b9bfc7bcc3490",
  uint8: "732b4dd5c3bcc2ce2f42e02efe1f77e4ed0be75c9529144b325b9bfc7bcc3490",
  int64: "ba5f93291b5672bf1672f8df30367280af82711edc6447feb50e1a21f7cdc322",
  bool: "06021f9ead3552dc149e9b5a82375572c8f837088de165e6bf7f298643f218da",
};

test("drawn values are the same as in Python", () => {
  for (const [dtype, digest] of Object.entries(DIGESTS)) {
    const { data } = draw(/** @type {any} */ (dtype), [3, 7001], 12);
    assert.equal(createHash("sha256").update(bytesOver(/** @type {any} */ (data))).digest("hex"), digest, dtype);
  }
  assert.throws(() => draw("float32", [2 ** 40], 0), TypeError);
});

/** A file with a drawn input of shape (2, 3), and of an output of 10 x 10 the elements 0, 9, 90 and 99. */
function golden() {
  const header = JSON.stringify({
    __metadata__: { "inputs/000/x": "drawn:5:float32:2,3", "outputs/000/y": "picked:10,10" },
    "inputs/000/x": { dtype: "U8", shape: [0], data_offsets: [0, 0] },
    "outputs/000/y": { dtype: "F32", shape: [2, 2], data_offsets: [0, 16] },
  });
  const text = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + text.length + 16);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  file.set(new Uint8Array(new Float32Array([0, 9, 90, 99]).buffer), 8 + text.length);
  return file;
}

/** @param {number[]} shape @param {number} [wrong] The element that is another. */
function session(shape, wrong) {
  const data = Float32Array.from({ length: 100 }, (_, i) => (i === wrong ? -50 : i));
  return { run: () => ({ y: { data, dtype: /** @type {"float32"} */ ("float32"), shape } }) };
}

test("a random input is drawn, and an output is compared on the elements that the file has", async () => {
  const examples = readExamples(golden());

  assert.deepEqual(examples[0].inputs.x.shape, [2, 3]);
  assert.deepEqual(examples[0].inputs.x.data, draw("float32", [2, 3], 5).data);
  assert.deepEqual(examples[0].outputs.y.whole, [10, 10]);
  await requireGolden(session([10, 10]), examples, { precision: "fp32" });
  await assert.rejects(requireGolden(session([10, 10], 90), examples, { precision: "fp32" }), /max err/);
  await assert.rejects(requireGolden(session([20, 5]), examples, { precision: "fp32" }), /another dtype or shape/);
});
