// Compiled models: what runs, and what a file may not say. The model adds 1 to an integer.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CompiledEngine } from "../src/engines/compiled.js";

const x = { name: "x", dtype: "int32", shape: [1], offset: 0 };
const y = { name: "y", dtype: "int32", shape: [1], offset: 16 };
const program = { version: 1, base: 32, inputs: [x], outputs: [y] };
// i32.store(48, i32.load(32) + 1), or `unreachable`.
const ADDS = [0x41, 48, 0x41, 32, 0x28, 2, 0, 0x41, 1, 0x6a, 0x36, 2, 0, 0x0b];
const TRAPS = [0x00, 0x0b];

/** @param {number} kind @param {number[]} content A section shorter than 2^14 bytes. */
const section = (kind, content) => [kind, (content.length & 127) | 128, content.length >> 7, ...content];
const text = (/** @type {string} */ value) => [value.length, ...new TextEncoder().encode(value)];

/**
 * @param {unknown} described The content of the custom section: a text as it is, or a value to write as JSON.
 * @param {{code?: number[], imports?: number[], name?: string}} [more]
 * @returns {Uint8Array<ArrayBuffer>}
 */
function model(described, { code = ADDS, imports = [], name = "edge_infer.program" } = {}) {
  const said = typeof described === "string" ? described : JSON.stringify(described);
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(0, [...text(name), ...new TextEncoder().encode(said)]),
    ...section(1, [1, 0x60, 0, 0]),
    ...imports,
    ...section(3, [1, 0]),
    ...section(5, [1, 0, 1]),
    ...section(7, [2, ...text("run"), 0, imports.length > 0 ? 1 : 0, ...text("memory"), 2, 0]),
    ...section(10, [1, code.length + 1, 0, ...code]),
  ]);
}

const engine = new CompiledEngine();

test("a model runs, and what it gave stays when it runs again", () => {
  const session = engine.createSession(model(program));

  const first = session.run({ x: Int32Array.of(41) }).y;
  const into = new Int32Array(1);
  session.run({ x: [6] }, { into: { y: into } });

  assert.deepEqual(session.inputs, [{ name: "x", dtype: "int32", shape: [1] }]);
  assert.deepEqual(first, { data: Int32Array.of(42), dtype: "int32", shape: [1] });
  assert.deepEqual(into, Int32Array.of(7));
});

test("each call has buffers of its own, and runs on what was written until it is closed", () => {
  const session = engine.createSession(model(program));
  const [one, other] = [session.bind(), session.bind({ x: [1] }, ["y"])];
  one.inputs.x[0] = 1;
  other.inputs.x[0] = 2;

  one.run();
  other.run();
  one.run();

  assert.deepEqual([one.outputs.y.data, other.outputs.y.data], [Int32Array.of(2), Int32Array.of(3)]);
  one.close();
  assert.throws(() => one.run(), { code: "input_error" });
  session.close();
  assert.throws(() => other.run(), { code: "input_error" });
  assert.throws(() => session.run({ x: [1] }), { code: "input_error" });
});

test("a value, a shape, an output or an array that does not fit is named", () => {
  const session = engine.createSession(model(program));

  assert.throws(() => session.run({}), { code: "input_error" });
  assert.throws(() => session.run({ x: Float32Array.of(1) }), { code: "input_error" });
  assert.throws(() => session.run({ x: [1] }, { outputs: ["z"] }), { code: "input_error" });
  assert.throws(() => session.run({ x: [1] }, { into: { y: new Int32Array(2) } }), { code: "input_error", message: /takes 4/ });
  assert.throws(() => session.bind({ x: [2] }), { code: "input_error" });
  assert.throws(() => session.bind().slot("y"), { code: "input_error" });
});

test("a model that fails while it runs says so, and the session stays", () => {
  const session = engine.createSession(model(program, { code: TRAPS }));

  for (let i = 0; i < 2; i++) assert.throws(() => session.run({ x: [1] }), { code: "execution_error", message: /compiled model failed/ });
});

test("a file that is damaged, reaches out, or lies about its memory is refused", () => {
  const importing = section(2, [1, ...text("env"), ...text("f"), 0, 0]);
  const change = (/** @type {object} */ more) => model({ ...program, inputs: [{ ...x, ...more }] });
  const wrong = {
    empty: new Uint8Array(),
    "a page": new TextEncoder().encode("<html>"),
    "cut short": model(program).subarray(0, -3),
    "no section": model(program, { name: "other" }),
    "an import": model(program, { imports: importing }),
    "no JSON": model("{"),
    "nothing": model("null"),
    "a later version": model({ ...program, version: 2 }),
    "no inputs": model({ ...program, inputs: undefined }),
    "a negative base": model({ ...program, base: -32 }),
    "a base of text": model({ ...program, base: "32" }),
    "no tensor": model({ ...program, inputs: [null] }),
    "no name": change({ name: 1 }),
    "an unknown dtype": change({ dtype: "int5" }),
    "a dtype of texts": change({ dtype: "string" }),
    "a dtype that every object has": change({ dtype: "constructor" }),
    "an offset that is far": change({ offset: 65536 }),
    "an offset between elements": change({ offset: 2 }),
    "a negative offset": change({ offset: -4 }),
    "a shape that is large": change({ shape: [2 ** 53, 2 ** 53] }),
    "a negative size": change({ shape: [-1] }),
    "a shape of text": change({ shape: "1" }),
    "a fraction": change({ shape: [0.5] }),
  };
  for (const [what, bytes] of Object.entries(wrong)) {
    assert.throws(() => engine.createSession(bytes), { code: "unsupported_model", message: /not a compiled model that can run here/ }, what);
  }
});

test("a free batch is run sample by sample", () => {
  const session = engine.createSession(model({ ...program, row: true }));

  assert.deepEqual(session.inputs, [{ name: "x", dtype: "int32", shape: ["batch"] }]);
  assert.deepEqual(session.run({ x: [1, 2, 3] }).y, { data: Int32Array.of(2, 3, 4), dtype: "int32", shape: [3] });
  assert.deepEqual(session.run({ x: Int32Array.of(9) }).y.data, Int32Array.of(10));
  assert.deepEqual(session.run({ x: new Int32Array(0) }).y.shape, [0]);
  const call = session.bind({ x: [2] });
  call.inputs.x[0] = 4;
  call.inputs.x[1] = 5;
  call.run();
  assert.deepEqual(call.outputs.y, { data: Int32Array.of(5, 6), dtype: "int32", shape: [2] });
  assert.throws(() => engine.createSession(model({ ...program, row: true, inputs: [{ ...x, shape: [2] }] })), {
    code: "unsupported_model",
    message: /one sample/,
  });
});

test("variables start over in each run, and stay in a session that keeps them", () => {
  // The variable lies where x does not: y = variable + x, and the variable becomes y.
  const adds = [0x41, 48, 0x41, 32, 0x28, 2, 0, 0x41, 40, 0x28, 2, 0, 0x6a, 0x36, 2, 0, 0x41, 40, 0x41, 48, 0x28, 2, 0, 0x36, 2, 0, 0x0b];
  const session = engine.createSession(model({ ...program, state: [[8, 4, -1]] }, { code: adds }));
  const [left, right] = [session.keepingState(), session.keepingState()];
  const sum = (/** @type {typeof session} */ one, /** @type {number} */ value) => one.run({ x: [value] }).y.data[0];

  assert.equal(JSON.parse(session.describe()).hasHiddenState, true);
  assert.deepEqual([1, 2, 2].flatMap((value) => [sum(session, value), sum(left, value), sum(right, 10 * value)]), [1, 1, 10, 2, 3, 30, 2, 5, 50]);
  for (const state of [[[-1, 4, -1]], [[8, 2 ** 20, -1]], [[8, 4, 2 ** 17]], [[8, "4", -1]], [8]]) {
    assert.throws(() => engine.createSession(model({ ...program, state }, { code: adds })), { code: "unsupported_model", message: /variable/ });
  }
});

/**
 * @param {number[]} dot The content of its section with a second form of the function in its table.
 * @returns {Uint8Array<ArrayBuffer>} A model that adds 1 by its table.
 */
function modelWithTable(dot) {
  return Uint8Array.from([
    ...model(program).subarray(0, 8),
    ...section(0, [...text("edge_infer.program"), ...new TextEncoder().encode(JSON.stringify(program))]),
    ...section(1, [1, 0x60, 0, 0]),
    ...section(3, [2, 0, 0]),
    ...section(4, [1, 0x70, 0, 1]),
    ...section(5, [1, 0, 1]),
    ...section(7, [3, ...text("run"), 0, 1, ...text("memory"), 2, 0, ...text("table"), 1, 0]),
    ...section(9, [1, 0, 0x41, 0, 0x0b, 1, 0]),
    ...section(10, [2, ADDS.length + 1, 0, ...ADDS, 7, 0, 0x41, 0, 0x11, 0, 0, 0x0b]),
    ...section(0, [...text("edge_infer.dot"), ...dot]),
  ]);
}

/**
 * @param {number} isExact What it answers.
 * @param {string} [name] Of its other function, which adds 2.
 * @returns {number[]}
 */
function dotModule(isExact, name = "convolution_int8") {
  const adds = ADDS.map((byte, i) => (byte === 1 && ADDS[i - 1] === 0x41 ? 2 : byte));
  assert.notDeepEqual(adds, ADDS);
  return [
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [2, 0x60, 0, 0, 0x60, 0, 1, 0x7f]),
    ...section(2, [1, ...text("env"), ...text("memory"), 2, 0, 1]),
    ...section(3, [2, 1, 0]),
    ...section(7, [2, ...text("is_exact"), 0, 0, ...text(name), 0, 1]),
    ...section(10, [2, 4, 0, 0x41, isExact, 0x0b, adds.length + 1, 0, ...adds]),
  ];
}

test("the second form of a function is called where it is exact and the browser can compile it", () => {
  const sum = (/** @type {number[]} */ dot) => engine.createSession(modelWithTable(dot)).run({ x: [40] }).y.data[0];

  assert.equal(sum(dotModule(1)), 42);
  for (const dot of [dotModule(0), [], dotModule(1).slice(0, -2), [...new TextEncoder().encode("no module")]]) assert.equal(sum(dot), 41);
  const kept = engine.createSession(modelWithTable(dotModule(1))).keepingState();
  assert.equal(kept.run({ x: [40] }).y.data[0], 42, "in a second session too");
});

test("a second form that is another module is refused", () => {
  const alone = [...model(program), ...section(0, [...text("edge_infer.dot"), ...dotModule(1)])];
  const importing = [...dotModule(1).slice(0, 8), ...section(1, [1, 0x60, 0, 0]), ...section(2, [1, ...text("env"), ...text("f"), 0, 0])];
  for (const bytes of [modelWithTable(dotModule(1, "other")), Uint8Array.from(alone), modelWithTable(importing)]) {
    assert.throws(() => engine.createSession(bytes), { code: "unsupported_model" });
  }
});
