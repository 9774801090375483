/** `load` in Node, where there are no workers: the engine of the npm package runs on the thread that asks. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { load } from "../src/index.js";
import { identity } from "./onnx.js";

let folder = "";
let path = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "edge-infer-"));
  path = join(folder, "same.onnx");
  await writeFile(path, Uint8Array.from(identity("float32", ["n"])));
});
after(() => rm(folder, { recursive: true }));

test("a model of this machine is loaded by its path, and runs", async () => {
  const session = await load(path);
  const answers = await Promise.all([1, 2, 3].map((value) => session.run({ x: Float32Array.of(value) })));

  assert.deepEqual(answers.map(({ y }) => y.data[0]), [1, 2, 3]);
  assert.equal(session.report().engine, "ort-web");

  await session.dispose();
  await assert.rejects(session.run({ x: Float32Array.of(1) }), { code: "input_error" });
});

test("a path relative to the working folder is one of this machine too", async () => {
  const before = process.cwd();
  process.chdir(folder);
  try {
    const session = await load("same.onnx");
    await session.dispose();
  } finally {
    process.chdir(before);
  }
});

test("an error is the one of the worker, and the next load works", async () => {
  await assert.rejects(load(join(folder, "none.onnx")), { name: "EdgeInferError" });
  await assert.rejects(load(path, { signal: AbortSignal.abort(new Error("no more")) }), /no more/);

  const session = await load(path);
  await assert.rejects(session.run({ z: 1 }), { code: "input_error" });
  await session.dispose();
});

test("`await using` gives the session back", async () => {
  const session = await load(path);
  await session[Symbol.asyncDispose]();

  await assert.rejects(session.run({ x: Float32Array.of(1) }), /closed/);
});

