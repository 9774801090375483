/** Revisions that lie, records that were cut, golden examples that do not come out, and roll-outs in steps. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { readExamples, requireGolden } from "../src/sync/golden.js";
import { RecordSlots } from "../src/sync/record.js";
import { bundleOf, parseRevision } from "../src/sync/revision.js";
import { offered } from "../src/sync/stage.js";
import { storeAddress } from "../src/sync/live.js";
import { split } from "../src/sync/pull.js";

const digest = "ab".repeat(32);
const encoded = (/** @type {unknown} */ value) => new TextEncoder().encode(JSON.stringify(value));

/** @param {Record<string, unknown>} [changes] @returns {any} */
function revision(changes = {}) {
  const files = [{ path: "manifest.json", size: 3, sha256: digest }];
  return { format: 1, model: "m", version: "1", sequence: 1, created: 1, files, pack: { sha256: digest, size: 5, parts: [digest] }, deltas: [], ...changes };
}

test("an honest revision is read", () => {
  assert.equal(bundleOf(parseRevision(encoded(revision()))), digest);
});

test("a revision that lies is refused", () => {
  const [file] = revision().files;
  const { pack } = revision();
  /** @type {[string, unknown][]} */
  const cases = [
    ["a list", []],
    ["null", null],
    ["another format", revision({ format: 2 })],
    ["no model", revision({ model: "" })],
    ["a sequence of text", revision({ sequence: "1" })],
    ["no manifest", revision({ files: [{ ...file, path: "a" }] })],
    ["one file twice", revision({ files: [file, file] })],
    ...["../manifest.json", "/x", "a//b", "a\\b", "c:x", "a/./b", ""].map((path) => /** @type {[string, unknown]} */ ([path, revision({ files: [file, { ...file, path }] })])),
    ["a negative size", revision({ files: [{ ...file, size: -1 }] })],
    ["a short sha256", revision({ files: [{ ...file, sha256: "ab" }] })],
    ["too few parts", revision({ pack: { ...pack, size: 2 ** 21 } })],
    ["a full pack with a base", revision({ pack: { ...pack, base: digest } })],
    ["a delta without a base", revision({ deltas: [pack] })],
    ["no lists", revision({ files: {}, deltas: {} })],
  ];
  for (const [what, document] of cases) {
    assert.throws(() => parseRevision(encoded(document)), (/** @type {any} */ error) => error.code === "store_error", what);
  }
  assert.throws(() => parseRevision(Uint8Array.of(0xff)), /no JSON/);
});

/** @returns {import("../src/places.js").Place & {files: Map<string, Uint8Array<ArrayBuffer>>}} */
function place() {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const files = new Map();
  return {
    kind: "memory",
    files,
    read: async (name) => files.get(name) ?? null,
    write: async (name, _offset, bytes) => void files.set(name, bytes),
    remove: async (name) => void files.delete(name),
    names: async () => [...files.keys()],
  };
}

test("a record survives the cut of any write, with the state before or after it", async () => {
  const kept = place();
  const slots = await RecordSlots.of(kept, "https://host/store/", "m");
  const first = { ...(await slots.read()), root: "one" };
  await slots.write(first);
  const before = new Map(kept.files);
  await slots.write({ ...first, root: "two" });
  const [name, whole] = [...kept.files].find(([one, bytes]) => before.get(one) !== bytes) ?? ["", new Uint8Array()];
  for (let length = 0; length <= whole.length; length++) {
    kept.files.set(name, whole.slice(0, length));
    const { root } = await (await RecordSlots.of(kept, "https://host/store/", "m")).read();
    assert.equal(root, length === whole.length ? "two" : "one");
  }
});

test("a new page has a name of its own and nothing else", async () => {
  const [one, other] = await Promise.all([0, 1].map(async () => (await RecordSlots.of(place(), "s", "m")).read()));
  assert.notEqual(one.device, other.device);
  assert.equal(one.active, null);
});

/** @param {number[]} values */
function golden(values) {
  const header = {
    "inputs/000/x": { dtype: "F32", shape: [1], data_offsets: [0, 4] },
    "outputs/000/y": { dtype: "F32", shape: [1, 2], data_offsets: [4, 12] },
  };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + 12);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  [1, ...values].forEach((value, i) => view.setFloat32(8 + text.length + 4 * i, value, true));
  return bytes;
}

const run = (/** @type {number[]} */ values) => ({ run: () => ({ y: { data: Float32Array.from(values), dtype: "float32", shape: [1, 2] } }) });

test("golden examples are compared as the precision allows", async () => {
  const examples = readExamples(golden([1, 2]));
  await requireGolden(run([1, 2]), examples, "fp32");
  await requireGolden(run([1.000001, 2]), examples, "fp32");
  await requireGolden(run([1.03, 2]), examples, "int8");
  await assert.rejects(requireGolden(run([1.03, 2]), examples, "fp32"), /max err/);
  await assert.rejects(requireGolden(run([1.03, 2]), examples, "fp16"), /SQNR/);
  await assert.rejects(requireGolden(run([2, 1]), examples, "int8"), /SQNR/);
  await assert.rejects(requireGolden(run([Number.NaN, 2]), examples, "int8"), /not finite/);
  await assert.rejects(requireGolden({ run: () => ({}) }, examples, "fp32"), /another dtype or shape/);
  await assert.rejects(requireGolden(run([1, 2]), [], "fp32"), /nothing to compare/);
});

test("what are no golden examples is refused", () => {
  const whole = golden([1, 2]);
  for (const bytes of [new Uint8Array(), new Uint8Array(20), whole.subarray(0, whole.length - 1)]) {
    assert.throws(() => readExamples(bytes.slice()), (/** @type {any} */ error) => error.code === "bundle_error");
  }
});

test("nothing is released where no fallback is named, and who has a version keeps it", async () => {
  const target = { hashes: { sha256: digest }, length: 5, custom: { sequence: 3, stage: { number: 1, share: 0 } } };
  await assert.rejects(offered(target, "m", "d", 0), (/** @type {any} */ error) => error.code === "not_released");
  assert.equal((await offered(target, "m", "d", 3)).sha256, digest);
  target.custom.stage = /** @type {any} */ ({ number: 1, share: 0, fallback: "cd".repeat(32) });
  assert.equal((await offered(target, "m", "d", 0)).sha256, "cd".repeat(32));
});

test("addresses name a store and a model", () => {
  assert.equal(storeAddress("/models/digits"), null);
  assert.equal(storeAddress("edge+https://host/a/store/digits"), "https://host/a/store/digits");
  assert.deepEqual(split("https://host/a/store/digits"), { at: "https://host/a/store/", model: "digits" });
  assert.throws(() => split("https://host/"), /names no model/);
});
