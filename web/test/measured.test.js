/** What was measured in a browser: it adds up, and what was found wrong is taken last. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { fetchBundle } from "../src/bundle/bundle.js";
import { fastest, recallMeasured, rememberMeasured, upperRatio, wrongVariants } from "../src/bundle/measured.js";
import { Store } from "../src/cache/store.js";
import { memoryPlace } from "./place.js";

Object.defineProperty(globalThis, "navigator", { value: { hardwareConcurrency: 2, userAgent: "node" }, configurable: true });

/** @typedef {import("../src/bundle/measured.js").Measurement} Measurement */

/** @param {Partial<Measurement>} [changes] @returns {Measurement} */
const row = (changes) => ({ variant: "onnx/int8", backend: "ort", device: "wasm", threads: 1, ms: 1, spread: 0, ...changes });

/** @param {boolean} isWrong @param {Partial<Measurement>} [changes] */
function failure(isWrong, changes) {
  const { ms: _, spread: __, ...way } = row(changes);
  return { ...way, reason: "why", isWrong };
}

test("a narrow measurement keeps what was measured of the other ways, and replaces the same ones", async () => {
  const store = new Store(memoryPlace(), "");
  const [int8, fp32, two] = [row(), row({ variant: "onnx/fp32", ms: 2 }), row({ threads: 2, ms: 3 })];
  await rememberMeasured(store, "r", [int8, fp32, two], []);

  await rememberMeasured(store, "r", [row({ ms: 9 })], [failure(false, { threads: 2 })]);

  const { rows } = await recallMeasured(store, "r");
  assert.deepEqual(rows, [fp32, row({ ms: 9 })]);
  assert.equal(fastest(rows, {})?.variant, "onnx/fp32");
});

test("a way that gives wrong answers is remembered until it gives the right ones, one that only fails is not", async () => {
  const store = new Store(memoryPlace(), "");
  await rememberMeasured(store, "r", [row({ variant: "onnx/fp32" })], [failure(true), failure(false, { variant: "onnx/fp16" })]);
  await rememberMeasured(store, "r", [row({ variant: "onnx/fp32", threads: 2 })], []);

  const { wrong } = await recallMeasured(store, "r");
  assert.deepEqual(wrongVariants(wrong, {}), ["onnx/int8"]);
  assert.deepEqual(wrongVariants(wrong, { device: "webgpu" }), [], "on another device it may be right");

  await rememberMeasured(store, "r", [row()], []);
  assert.deepEqual((await recallMeasured(store, "r")).wrong, []);
});

test("a way is taken for the rule's choice only where it is surely faster", () => {
  const rule = row({ ms: 2, vsRule: 1 });
  const noisy = fastest([rule, row({ variant: "onnx/fp32", ms: 1.9, vsRule: 1.01 })], {});
  const sure = fastest([rule, row({ variant: "onnx/fp32", ms: 1.9, vsRule: 0.99 })], {});
  const apart = fastest([rule, row({ variant: "onnx/fp32", ms: 1.9 })], {});
  const alone = fastest([rule, row({ variant: "onnx/fp32", ms: 1.9, vsRule: 1.01 })], { variant: "onnx/fp32" });

  assert.deepEqual([noisy?.variant, noisy?.why], ["onnx/int8", "measured: too noisy to tell a faster way from the rule's choice: 2.00 ms"]);
  assert.deepEqual([sure?.variant, apart?.variant, alone?.variant], ["onnx/fp32", "onnx/fp32", "onnx/fp32"]);
});

test("the interval of paired ratios is that of Python", () => {
  const times = [2, 1, 3, 5, 4, 6, 8, 7, 9, 10, 12, 11]; // of edge_infer.runtime.tuning.upper_ratio
  assert.equal(upperRatio(times, times.map(() => 1)), 10);
  assert.equal(upperRatio([1, 2, 3, 4, 5], [1, 1, 1, 1, 1]), 5);
  assert.equal(upperRatio([2, 4, 6], [1, 2, 3]), 2);
});

const model = new TextEncoder().encode("the bytes of a model");
const sha256 = createHash("sha256").update(model).digest("hex");

/** @param {string[]} wrong @param {import("../src/bundle/bundle.js").FetchOptions} [options] */
async function taken(wrong, options) {
  const variants = [["onnx/int8", ["any"]], ["onnx/fp32", ["any"]], ["onnx/fp16", ["cuda"]]].map(([id, targets]) => {
    const [format, precision] = String(id).split("/");
    return { id, format, precision, file: "onnx/model.onnx", targets };
  });
  const files = [{ path: "onnx/model.onnx", size: model.length, sha256 }];
  const manifest = { schema_version: "1.0", name: "tiny", version: "1", inputs: [], outputs: [], variants, files };
  const place = memoryPlace();
  const store = new Store(place, "");
  const address = "http://127.0.0.1:1/tiny"; // nobody is there: all of it was kept
  const name = createHash("sha256").update(`${address}/manifest.json`).digest("hex");
  place.files.set(`manifest-${name}`, new TextEncoder().encode(JSON.stringify(manifest)));
  place.files.set(sha256, model);
  const { variant, why } = await fetchBundle(address, { store, measured: async () => ({ best: undefined, wrong }), ...options });
  return [variant.id, why];
}

test("by rule a variant that gives wrong answers here is taken last, and where it is asked for", async () => {
  assert.deepEqual(await taken([]), ["onnx/int8", "rule: of onnx variants int8 comes first here"]);
  assert.deepEqual(await taken(["onnx/int8"]), ["onnx/fp32", "rule: of onnx variants fp32 comes first here"]);
  assert.deepEqual(await taken(["onnx/int8", "onnx/fp32"]), ["onnx/int8", "last: its golden outputs do not come here"]);
  assert.deepEqual(await taken(["onnx/int8"], { variant: "onnx/int8" }), ["onnx/int8", "asked for"]);
});
