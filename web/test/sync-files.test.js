/** Metadata and revisions that lie, records that were cut, golden examples that do not come out, and roll-outs in steps. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { readExamples, requireGolden } from "../src/bundle/golden.js";
import { RecordSlots } from "../src/sync/record.js";
import { bundleOf, parseRevision } from "../src/sync/revision.js";
import { offered } from "../src/sync/stage.js";
import { Store } from "../src/cache/store.js";
import { StoreModel, split } from "../src/sync/pull.js";
import { NO_FLOOR, newest } from "../src/sync/trust.js";
import { memoryPlace } from "./place.js";

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

test("a record survives the cut of any write, with the state before or after it", async () => {
  const kept = memoryPlace();
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
  const [one, other] = await Promise.all([0, 1].map(async () => (await RecordSlots.of(memoryPlace(), "s", "m")).read()));
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
  await requireGolden(run([1, 2]), examples, { precision: "fp32" });
  await requireGolden(run([1.000001, 2]), examples, { precision: "fp32" });
  await requireGolden(run([1.03, 2]), examples, { precision: "int8" });
  await assert.rejects(requireGolden(run([1.03, 2]), examples, { precision: "fp32" }), /max err/);
  await assert.rejects(requireGolden(run([1.03, 2]), examples, { precision: "fp16" }), /SQNR/);
  await assert.rejects(requireGolden(run([2, 1]), examples, { precision: "int8" }), /SQNR/);
  await assert.rejects(requireGolden(run([Number.NaN, 2]), examples, { precision: "int8" }), /not finite/);
  await assert.rejects(requireGolden({ run: () => ({}) }, examples, { precision: "fp32" }), /another dtype or shape/);
  await assert.rejects(requireGolden(run([1, 2]), [], { precision: "fp32" }), /nothing to compare/);

  // What the manifest knows of an output holds an integer variant to it, and excuses a source that is not near to itself.
  const knowing = (/** @type {string} */ precision, /** @type {object} */ y) => ({ precision, parity: { y } });
  await assert.rejects(requireGolden(run([1.08, 2]), examples, knowing("int8", {})), /expected >= 30/);
  await requireGolden(run([1.5, 2]), examples, knowing("int8", { sqnr_db: 14 }));
  await assert.rejects(requireGolden(run([2, 1]), examples, knowing("int8", { sqnr_db: 14 })), /expected >= 8/);
  await requireGolden(run([1.03, 2]), examples, knowing("fp32", { sqnr_db: 38, max_err: 0.02 }));
  await assert.rejects(requireGolden(run([1.03, 2]), examples, knowing("fp32", { sqnr_db: 80, max_err: 1e-4 })), /max err/);
});

test("what are no golden examples is refused", () => {
  const whole = golden([1, 2]);
  for (const bytes of [new Uint8Array(), new Uint8Array(20), whole.subarray(0, whole.length - 1)]) {
    assert.throws(() => readExamples(bytes.slice()), (/** @type {any} */ error) => error.code === "bundle_error");
  }
});

/** @param {Record<string, string>} notes @returns {Uint8Array<ArrayBuffer>} Two examples; the notes say what is a text. */
function noted(notes) {
  const tensor = { dtype: "U8", shape: [1], data_offsets: [0, 1] };
  const names = ["inputs/000/x", "outputs/000/y", "outputs/000/label", "inputs/001/x", "outputs/001/y", "outputs/001/label"];
  const header = { __metadata__: notes, ...Object.fromEntries(names.map((name) => [name, tensor])) };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + 1);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

test("an example that is fed a text, or has nothing else to compare, is none", () => {
  const named = (/** @type {Record<string, string>} */ notes) => readExamples(noted(notes)).map(({ outputs }) => Object.keys(outputs).join());
  assert.deepEqual(named({}), ["y,label", "y,label"]);
  assert.deepEqual(named({ "inputs/000/x": "string" }), ["y,label"]);
  assert.deepEqual(named({ "outputs/000/label": "string", "outputs/001/label": "string" }), ["y", "y"]);
  assert.deepEqual(named({ "outputs/000/label": "string", "outputs/000/y": "string" }), ["y,label"]);
});

test("metadata of another form is refused as metadata, so that the version of the last time serves", async () => {
  const roles = Object.fromEntries(["root", "timestamp", "snapshot", "targets"].map((name) => [name, { keyids: [], threshold: 1 }]));
  const signed = { spec_version: "1.0.31", version: 1, expires: "2999-01-01T00:00:00Z" };
  const root = JSON.stringify({ signed: { ...signed, _type: "root", keys: {}, roles }, signatures: [] });
  const nested = `${"[".repeat(5000)}${"]".repeat(5000)}`;
  for (const [more, signatures] of [["", "[null]"], [',"x":1.5', "[]"], [`,"x":${nested}`, "[]"]]) {
    const head = JSON.stringify({ ...signed, _type: "timestamp" }).slice(0, -1);
    const text = `{"signed":${head}${more}},"signatures":${signatures}}`;
    const read = async (/** @type {string} */ path) => (path === "tuf/timestamp.json" ? new TextEncoder().encode(text) : null);
    await assert.rejects(newest(read, "m", root, NO_FLOOR), { code: "signature_error" });
  }
});

test("a store's old files are removed, and those of other stores and of plain bundles stay", async () => {
  const place = memoryPlace();
  const store = new Store(place, "");
  const file = (/** @type {string} */ path, /** @type {string} */ sha256) => ({ path, size: 1, sha256 });
  const add = async (/** @type {string} */ sha256, /** @type {string} */ model) => {
    await place.write(sha256, 0, new Uint8Array(1));
    await store.note(file(sha256, sha256), model);
  };
  const [one, other] = ["https://host/store/digits", "https://host/staging/digits"].map((address) => new StoreModel(address, store));
  await add("old", one.label);
  await add("new", one.label);
  await add("shared", one.label);
  await add("theirs", other.label);
  await add("plain", "digits");
  const slots = await other.record();
  await slots.write({ ...(await slots.read()), active: { version: "1", sequence: 1, files: [file("a", "theirs"), file("b", "shared")] } });

  const record = await (await one.record()).read();
  await one.collect({ ...record, active: { version: "2", sequence: 2, files: [file("manifest.json", "new")] } });

  const there = (await place.names()).filter((name) => !/^(record-|index)/.test(name));
  assert.deepEqual(there.sort(), ["new", "plain", "shared", "theirs"]);
});

test("nothing is released where no fallback is named, and who has a version keeps it", async () => {
  const target = { hashes: { sha256: digest }, length: 5, custom: { sequence: 3, stage: { number: 1, share: 0 } } };
  await assert.rejects(offered(target, "m", "d", 0), (/** @type {any} */ error) => error.code === "not_released");
  assert.equal((await offered(target, "m", "d", 3)).sha256, digest);
  target.custom.stage = /** @type {any} */ ({ number: 1, share: 0, fallback: "cd".repeat(32) });
  assert.equal((await offered(target, "m", "d", 0)).sha256, "cd".repeat(32));
});

test("an entry without a proper length or hash is refused", async () => {
  const whole = { hashes: { sha256: digest }, length: 5 };
  assert.deepEqual(await offered(whole, "m", "d", 0), { sha256: digest, length: 5, stage: 0 });
  for (const changes of [{ length: undefined }, { length: "5" }, { length: -1 }, { hashes: {} }, { hashes: { sha256: "../x" } }]) {
    await assert.rejects(offered({ ...whole, ...changes }, "m", "d", 0), { code: "signature_error" }, JSON.stringify(changes));
  }
});

test("addresses name a store and a model", () => {
  assert.deepEqual(split("https://host/a/store/digits"), { at: "https://host/a/store/", model: "digits" });
  assert.throws(() => split("https://host/"), /names no model/);
});
