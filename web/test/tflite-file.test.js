/** The tables of a `.tflite` file: its inputs, other shapes for them, and files that are cut or lie. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { EdgeInferError } from "../src/errors.js";
import { TfliteFile, endNames } from "../src/engines/tflite-file.js";

/** The model that the engine tests itself with: y = x + x over x: float32[batch, 2]. */
async function selfTestModel() {
  const source = await readFile(new URL("../src/engines/litert.js", import.meta.url), "utf8");
  const parts = /SELF_TEST_MODEL =\n([^;]+);/.exec(source)?.[1].match(/"[^"]*"/g) ?? [];
  return new Uint8Array(Buffer.from(parts.map((part) => JSON.parse(part)).join(""), "base64"));
}

test("a file tells its inputs and the shapes that they start with", async () => {
  const file = new TfliteFile(await selfTestModel());

  assert.deepEqual([...file.inputs.keys()], ["x"]);
  assert.deepEqual(file.shapeOf("x"), [1, 2]);
});

test("a file whose vector of signatures is empty names its inputs by their tensors", async () => {
  const model = await selfTestModel();
  const file = new TfliteFile(model);
  // The first signature's offset stands behind the vector's length.
  const signatures = file.vector(file.follow(0), 7);
  const emptied = model.slice();
  new DataView(emptied.buffer).setUint32(signatures, 0, true);

  assert.deepEqual([...new TfliteFile(emptied).inputs.keys()], ["x"]);
});

test("a copy with other shapes differs in its inputs only", async () => {
  const model = await selfTestModel();
  const copy = new TfliteFile(new TfliteFile(model).withShapes({ x: [7, 2] }));

  assert.deepEqual(copy.shapeOf("x"), [7, 2]);
  assert.deepEqual(new TfliteFile(model).shapeOf("x"), [1, 2]);
  assert.equal(copy.bytes.slice(0, model.length).filter((byte, i) => byte !== model[i]).length > 0, true);
});

test("an input that the file does not name is refused", async () => {
  const file = new TfliteFile(await selfTestModel());

  assert.throws(() => file.withShapes({ z: [1] }), /which tensor its input `z` is/);
});

test("bytes that are not a TFLite file, or were cut short, are refused", async () => {
  const model = await selfTestModel();
  const isRefused = (/** @type {unknown} */ error) => error instanceof EdgeInferError && error.code === "unsupported_model";

  assert.throws(() => new TfliteFile(new Uint8Array()), isRefused);
  assert.throws(() => new TfliteFile(new TextEncoder().encode("<!doctype html><title>404</title>")), isRefused);
  for (const length of [8, 64, 256, model.length >> 1]) {
    assert.throws(() => new TfliteFile(model.slice(0, length)), isRefused, `${length} bytes`);
  }
});

test("a file whose offsets lie is refused or read, and never anything else", async () => {
  const model = await selfTestModel();
  for (let place = 0; place < model.length; place += 1) {
    for (const value of [0xff, 0x7f, 0x00]) {
      const changed = model.slice();
      changed[place] = value;
      try {
        const file = new TfliteFile(changed);
        for (const name of file.inputs.keys()) file.shapeOf(name);
      } catch (error) {
        assert.ok(error instanceof EdgeInferError, `byte ${place} as ${value}: ${error}`);
      }
    }
  }
});

test("an end without a name is called by its side and place", () => {
  assert.deepEqual(endNames(["", "b", ""], "input"), ["input_0", "b", "input_2"]);
  assert.deepEqual(endNames([""], "output", 3), ["output_3"]);
});
