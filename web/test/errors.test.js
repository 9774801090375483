/** Errors and messages that cross from a worker to its page. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { PYODIDE_VERSION } from "../src/engines/pyodide.js";
import { ORT_VERSION } from "../src/engines/ort.js";
import { EdgeInferError } from "../src/errors.js";
import { VERSION } from "../src/index.js";
import { transferable } from "../src/page/protocol.js";
import { didYouMean } from "../src/tasks/words.js";

test("an error is the same after it was sent", () => {
  const error = new EdgeInferError("Input `x` is missing", "input_error", { hint: "add it", details: { input: "x" } });

  const received = EdgeInferError.fromJSON(JSON.parse(JSON.stringify(error)));

  assert.ok(received instanceof EdgeInferError);
  assert.deepEqual(received.toJSON(), error.toJSON());
  assert.equal(String(received), "Input `x` is missing\nhint: add it");
});

test("anything that is thrown can be described", () => {
  assert.equal(EdgeInferError.describe(new TypeError("no")).error, "TypeError: no");
  assert.equal(EdgeInferError.describe("text").error, "text");
  assert.equal(EdgeInferError.describe(undefined).code, "error");
});

test("each large buffer is moved once, a small one and shared memory never", () => {
  const buffer = new ArrayBuffer(8192);
  /** @type {Record<string, import("../src/tensors.js").Tensor>} */
  const tensors = {
    one: { data: new Uint8Array(buffer, 0, 4), dtype: "uint8", shape: [4] },
    two: { data: new Uint8Array(buffer, 4), dtype: "uint8", shape: [8188] },
    small: { data: new Uint8Array(4095), dtype: "uint8", shape: [4095] },
    shared: { data: new Uint8Array(new SharedArrayBuffer(8192)), dtype: "uint8", shape: [8192] },
    text: { data: ["a"], dtype: "string", shape: [1] },
  };

  assert.deepEqual(transferable(tensors), [buffer]);
});

test("the nearest choice is suggested as in Python", async () => {
  const cases = JSON.parse(await readFile(new URL("../../tests/runtime/suggestions.json", import.meta.url), "utf-8"));

  for (const [word, choices, meant] of cases) assert.equal(didYouMean(word, choices), meant && `did you mean \`${meant}\`?`, word);
});

test("the versions are those of the package", async () => {
  const description = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf-8"));

  assert.equal(VERSION, description.version);
  assert.equal(ORT_VERSION, description.dependencies["onnxruntime-web"]);
  assert.equal(PYODIDE_VERSION, description.dependencies.pyodide);
});
