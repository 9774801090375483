/** The engine on Node: dtypes, shapes, kept tensors, memory, and models that are none. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { EdgeInferError } from "../src/errors.js";
import { EngineTensor, OrtHeap } from "../src/engines/ort-heap.js";
import { startOrtEngine } from "../src/engines/ort.js";
import { DTYPES } from "../src/tensors.js";
import { identity, initializer, model, node } from "./onnx.js";

/** @typedef {import("../src/tensors.js").Tensor} Tensor */
/** @typedef {import("../src/tensors.js").DType} DType */

const base = new URL("../node_modules/onnxruntime-web/dist/", import.meta.url);
const engine = await startOrtEngine({ base });

/** @param {Tensor | EngineTensor} value @returns {any[]} */
const listed = (value) => {
  assert.ok(!(value instanceof EngineTensor), "still in the engine");
  return [.../** @type {Iterable<any>} */ (value.data)];
};

/** @param {(session: any) => void} use @param {Uint8Array} bytes @param {object} [options] */
function withSession(bytes, use, options) {
  const session = engine.createSession(bytes, options);
  try {
    use(session);
  } finally {
    session.close();
  }
}

/** @type {[DType, any][]} */
const VALUES = [
  ["float32", new Float32Array([1.5, -2, 3e38])],
  ["float64", new Float64Array([1.5, -2, 1e300])],
  ["float16", Uint16Array.of(0x3c00, 0xc000, 0x7bff)],
  ["bfloat16", Uint16Array.of(0x3f80, 0xc000, 0x7f7f)],
  ["int8", Int8Array.of(-128, 0, 127)],
  ["uint8", Uint8Array.of(0, 1, 255)],
  ["int16", Int16Array.of(-32768, 0, 32767)],
  ["uint16", Uint16Array.of(0, 1, 65535)],
  ["int32", Int32Array.of(-(2 ** 31), 0, 2 ** 31 - 1)],
  ["uint32", Uint32Array.of(0, 1, 2 ** 32 - 1)],
  ["int64", BigInt64Array.of(-(2n ** 63n), 0n, 2n ** 63n - 1n)],
  ["uint64", BigUint64Array.of(0n, 1n, 2n ** 64n - 1n)],
  ["bool", Uint8Array.of(1, 0, 1)],
];

for (const [dtype, data] of VALUES) {
  test(`${dtype} goes in and comes out bit by bit`, () =>
    withSession(identity(dtype, ["n"]), (session) => {
      const { y } = session.run({ x: data });

      assert.equal(session.inputs[0].dtype, dtype);
      assert.equal(y.dtype, dtype);
      assert.deepEqual([...new Uint8Array(y.data.buffer)], [...new Uint8Array(data.buffer)]);
    }));
}

test("strings go in and come out, with empty and non-ASCII ones", () =>
  withSession(identity("string", ["n"]), (session) => {
    const texts = ["", "digits", "Ziffern äöü", "数字", ""];

    assert.deepEqual(session.run({ x: texts }).y.data, texts);
    assert.deepEqual(session.run({ x: [] }).y.data, []);
  }));

test("4-bit values are dequantized as the engine packs them", () => {
  for (const dtype of /** @type {DType[]} */ (["int4", "uint4"])) {
    const bytes = model(
      [{ name: "x", dtype, shape: [3] }],
      [{ name: "y", dtype: "float32", shape: [3] }],
      [node("DequantizeLinear", ["x", "scale"], ["y"])],
      [initializer("scale", "float32", [], Float32Array.of(0.5))],
    );
    const values = dtype === "int4" ? [-8, 7, -1] : [0, 15, 9];

    withSession(bytes, (session) => {
      assert.deepEqual(listed(session.run({ x: values }).y), values.map((value) => value / 2));
    });
  }
});

test("a scalar has no dimension on either side", () =>
  withSession(identity("float32", []), (session) => {
    const { y } = session.run({ x: 2.5 });

    assert.deepEqual([y.shape, listed(y)], [[], [2.5]]);
  }));

test("a batch of none gives an output of none", () =>
  withSession(identity("float32", ["batch", 3]), (session) => {
    const { y } = session.run({ x: { data: new Float32Array(0), shape: [0, 3] } });

    assert.deepEqual([y.shape, y.data.length], [[0, 3], 0]);
  }));

test("symbolic dimensions keep their names, nameless ones get one of their own", () =>
  withSession(identity("float32", ["batch", null, 3]), (session) => {
    assert.deepEqual(session.inputs[0].shape, ["batch", "x_1", 3]);
  }));

test("a symbol can be given its size when the model is loaded", () =>
  withSession(
    identity("float32", ["batch", 3]),
    (session) => {
      assert.deepEqual(session.inputs[0].shape, [2, 3]);
    },
    { freeDimensions: { batch: 2 } },
  ));

test("only the outputs asked for are computed", () => {
  const dtype = "float32";
  const bytes = model(
    [{ name: "x", dtype, shape: [2] }],
    [
      { name: "twice", dtype, shape: [2] },
      { name: "square", dtype, shape: [2] },
    ],
    [node("Add", ["x", "x"], ["twice"]), node("Mul", ["x", "x"], ["square"])],
  );

  withSession(bytes, (session) => {
    const results = session.run({ x: [3, 4] }, { outputs: ["square"] });

    assert.deepEqual(Object.keys(results), ["square"]);
    assert.deepEqual(listed(results.square), [9, 16]);
  });
});

test("an output whose shape depends on the data is read as it comes", () => {
  const bytes = model(
    [{ name: "x", dtype: "float32", shape: ["n"] }],
    [{ name: "y", dtype: "int64", shape: [1, "found"] }],
    [node("NonZero", ["x"], ["y"])],
  );

  withSession(bytes, (session) => {
    assert.deepEqual(listed(session.run({ x: [0, 1, 0, 1] }).y), [1n, 3n]);
    assert.deepEqual(session.run({ x: [0, 0, 0, 0] }).y.shape, [1, 0]);
  });
});

test("a model that states a wrong output shape runs all the same", () => {
  const bytes = model(
    [{ name: "x", dtype: "float32", shape: ["n"] }],
    [{ name: "y", dtype: "float32", shape: [7] }],
    [node("Identity", ["x"], ["y"])],
  );

  withSession(bytes, (session) => {
    assert.deepEqual(listed(session.run({ x: [1, 2, 3] }).y), [1, 2, 3]);
    assert.deepEqual(listed(session.run({ x: [4, 5, 6] }).y), [4, 5, 6]);
  });
});

/** A cache that grows by one row for each step, as a decoder's does: `present` = `past` + `row`. */
const CACHE = model(
  [
    { name: "past", dtype: "float32", shape: ["t", 2] },
    { name: "row", dtype: "float32", shape: [1, 2] },
  ],
  [{ name: "present", dtype: "float32", shape: ["t_next", 2] }],
  [node("Concat", ["past", "row"], ["present"], { axis: 0 })],
);

test("a kept tensor is fed back where it lies, and read at the end", () =>
  withSession(CACHE, (session) => {
    let held = engine.tensor("float32", [0, 2]);
    for (let step = 0; step < 5; step++) {
      const { present } = session.run({ past: held, row: [[step, -step]] }, { keep: ["present"] });
      held.close();
      held = present;
    }

    assert.equal(held.location, "engine");
    assert.deepEqual(held.shape, [5, 2]);
    const bytes = held.bytes.slice();
    assert.deepEqual([...new Float32Array(bytes.buffer)], [0, -0, 1, -1, 2, -2, 3, -3, 4, -4]);
    held.close();
    assert.throws(() => held.bytes, /closed/);
    assert.throws(() => session.run({ past: held, row: [[1, 1]] }), /closed/);
  }));

test("an LSTM cell keeps its state in the engine and gives the same numbers", () => {
  const size = 4;
  const weights = (/** @type {number} */ rows) => Float32Array.from({ length: 16 * rows }, (_, i) => Math.sin(i + rows));
  const state = { dtype: /** @type {DType} */ ("float32"), shape: [1, 1, size] };
  const bytes = model(
    [
      { name: "x", dtype: "float32", shape: [1, 1, 3] },
      { name: "h", ...state },
      { name: "c", ...state },
    ],
    [
      { name: "h_out", ...state },
      { name: "c_out", ...state },
    ],
    [node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["", "h_out", "c_out"], { hidden_size: size })],
    [initializer("w", "float32", [1, 16, 3], weights(3)), initializer("r", "float32", [1, 16, size], weights(size))],
  );

  withSession(bytes, (session) => {
    /** @type {any} */
    let kept = { h_out: engine.tensor("float32", [1, 1, size]), c_out: engine.tensor("float32", [1, 1, size]) };
    /** @type {any} */
    let copied = { h_out: new Float32Array(size), c_out: new Float32Array(size) };
    for (let step = 0; step < 6; step++) {
      const x = Float32Array.of(step, 1, -step);
      const before = kept;
      kept = session.run({ x, h: kept.h_out, c: kept.c_out }, { keep: ["h_out", "c_out"] });
      copied = session.run({ x, h: copied.h_out, c: copied.c_out });
      for (const tensor of Object.values(before)) tensor.close();
    }

    assert.deepEqual([...kept.h_out.bytes], [...new Uint8Array(copied.h_out.data.buffer)]);
    for (const tensor of Object.values(kept)) tensor.close();
  });
});

test("`into` writes into the caller's array, and into a tensor of the engine in place", () =>
  withSession(identity("float32", [2]), (session) => {
    const array = new Float32Array(2);
    const tensor = engine.tensor("float32", [2]);

    assert.equal(session.run({ x: [1, 2] }, { into: { y: array } }).y.data, array);
    assert.equal(session.run({ x: [3, 4] }, { into: { y: tensor } }).y, tensor);

    assert.deepEqual([...array], [1, 2]);
    assert.deepEqual([...tensor.bytes], [...new Uint8Array(Float32Array.of(3, 4).buffer)]);
    tensor.close();
    assert.throws(() => session.run({ x: [1, 2] }, { into: { y: new Float32Array(3) } }), { code: "input_error" });
  }));

test("an output that is also an input is right in every form, and no view of the input", () => {
  const spec = { dtype: /** @type {DType} */ ("float32"), shape: ["n", 2] };
  const bytes = model([{ name: "x", ...spec }], [{ name: "x", ...spec }, { name: "y", ...spec }], [node("Neg", ["x"], ["y"])]);

  withSession(bytes, (session) => {
    for (const x of [[[1, 2]], [[3, 4]]]) {
      const [plain, array, tensor] = [session.run({ x }), new Float32Array(2), engine.tensor("float32", [1, 2])];
      assert.deepEqual(listed(plain.x), x[0]);
      session.run({ x }, { into: { x: array } });
      session.run({ x }, { into: { x: tensor } });
      assert.deepEqual([...array], x[0]);
      assert.deepEqual([...tensor.bytes], [...new Uint8Array(Float32Array.from(x[0]).buffer)]);
      const { x: held } = /** @type {any} */ (session.run({ x }, { keep: ["x"] }));
      session.run({ x: [[7, 8]] }, { keep: ["x"] }).x.close();
      assert.deepEqual([...held.bytes], [...tensor.bytes]);
      const fed = /** @type {any} */ (session.run({ x: held }, { keep: ["x"] }));
      held.close();
      assert.deepEqual([...fed.x.bytes], [...tensor.bytes]);
      fed.x.close();
      tensor.close();
    }
    const call = session.bind({ x: [1, 2] });
    for (const values of [[1, 2], [5, 6]]) {
      call.inputs.x.set(values);
      call.run();
      assert.deepEqual([...call.outputs.x.data], values);
    }
    call.close();
  });
});

test("a prepared call without the tensor that it writes into is refused, and the engine lives on", () =>
  withSession(identity("float32", [2]), (session) => {
    const call = session.bind({ x: [2] }, ["y"], [], ["y"]);
    assert.throws(() => call.run(), { code: "input_error" });
    assert.throws(() => call.run({ handle: 1 }), { code: "input_error" });
    call.close();
    assert.deepEqual(listed(session.run({ x: [1, 2] }).y), [1, 2]);
  }));

test("an engine that stopped is not held against the next model, and memory that is short against none", () => {
  const said = new TextEncoder().encode("std::bad_alloc\0");
  const heap = new OrtHeap(
    /** @type {any} */ ({
      HEAPU8: new Uint8Array([...new Array(64).fill(0), ...said]),
      HEAPU32: Uint32Array.of(0, 0, 0, 0, 6, 64),
      _malloc: () => 16,
      _OrtGetLastError() {},
      getValue() {},
    }),
  );
  const stop = (/** @type {string} */ why) => () => {
    throw new Error(why);
  };
  assert.equal(heap.error("It failed", "unsupported_model").code, "out_of_memory");
  assert.throws(() => heap.guard(stop("Aborted(OOM)"), "running a model"), { code: "out_of_memory" });
  assert.throws(() => heap.guard(() => 1, "running a model"), { code: "backend_unavailable", message: /stopped earlier/ });
});

test("a prepared call runs on what its buffers hold", () =>
  withSession(identity("float32", ["n"]), (session) => {
    const call = session.bind({ x: [2] });
    const buffer = call.inputs.x;
    buffer.set([5, 6]);
    assert.equal(call.run(), undefined);
    const first = call.outputs.y.data;
    buffer.set([7, 8]);
    call.run();

    assert.deepEqual([...first], [7, 8], "the same output buffer is used again");
    call.close();
    assert.throws(() => call.run(), { code: "input_error" });
  }));

test("the engine's refusal keeps ONNX Runtime's text and code", () => {
  const bytes = model(
    [{ name: "x", dtype: "float32", shape: [2, 2] }],
    [{ name: "y", dtype: "float32", shape: [2, 2] }],
    [node("NoSuchOperator", ["x"], ["y"])],
  );

  assert.throws(
    () => engine.createSession(bytes),
    (/** @type {EdgeInferError} */ error) =>
      error.code === "unsupported_model" && /NoSuchOperator/.test(error.message) && error.details.ort_name !== undefined,
  );
});

test("a failure while running is an execution error and leaves the session usable", () => {
  const bytes = model(
    [
      { name: "x", dtype: "float32", shape: ["n"] },
      { name: "shape", dtype: "int64", shape: [1] },
    ],
    [{ name: "y", dtype: "float32", shape: ["m"] }],
    [node("Reshape", ["x", "shape"], ["y"])],
  );

  withSession(bytes, (session) => {
    assert.throws(() => session.run({ x: [1, 2, 3], shape: [5] }), { code: "execution_error" });
    assert.deepEqual(listed(session.run({ x: [1, 2, 3], shape: [3] }).y), [1, 2, 3]);
  });
});

test("bytes that are no model are refused, and the engine lives on", () => {
  const whole = identity("float32", ["n"]);
  const hostile = [
    new Uint8Array(0),
    new Uint8Array(1000).fill(255),
    new TextEncoder().encode("<!doctype html><title>404</title>"),
    ...[1, 10, 30, whole.length - 3].map((length) => whole.slice(0, length)),
    ...Array.from({ length: 40 }, (_, i) => whole.map((byte, at) => (at === i ? byte ^ 0x55 : byte))),
  ];
  for (const bytes of hostile) {
    try {
      engine.createSession(bytes).close();
    } catch (error) {
      assert.ok(error instanceof EdgeInferError, String(error));
      assert.equal(error.code, "unsupported_model", error.message);
    }
  }

  withSession(whole, (session) => assert.deepEqual(listed(session.run({ x: [1] }).y), [1]));
});

test("200 loads and runs of a model leave the engine's memory as it was", () => {
  const weights = new Float32Array(250_000);
  const bytes = model(
    [{ name: "x", dtype: "float32", shape: ["n", 500] }],
    [{ name: "y", dtype: "float32", shape: ["n", 500] }],
    [node("MatMul", ["x", "w"], ["y"])],
    [initializer("w", "float32", [500, 500], weights)],
  );
  const once = () =>
    withSession(bytes, (session) => {
      session.run({ x: { data: new Float32Array(1000), shape: [2, 500] } });
      session.run({ x: { data: new Float32Array(500), shape: [1, 500] } }, { keep: ["y"] }).y.close();
    });
  for (let i = 0; i < 3; i++) once();
  const before = engine.heap.size;
  for (let i = 0; i < 200; i++) once();

  assert.equal(engine.heap.size, before);
});

test("tensors that nobody closed are given back when they are collected", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  for (let i = 0; i < 40; i++) {
    engine.tensor("uint8", [16 * 2 ** 20]);
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }

  assert.ok(engine.heap.size < 300 * 2 ** 20, `${engine.heap.size} bytes`);
});

test("a request for more memory than there is fails, and the engine lives on", () => {
  const bytes = model(
    [{ name: "shape", dtype: "int64", shape: ["n"] }],
    [{ name: "y", dtype: "float32", shape: [] }],
    [node("ConstantOfShape", ["shape"], ["zeros"]), node("ReduceSum", ["zeros"], ["y"], { keepdims: 0 })],
  );

  assert.throws(() => engine.tensor("float32", [2 ** 30]), { code: "out_of_memory" });
  assert.throws(() => engine.tensor("float32", [2 ** 29, 2 ** 10]), { code: "out_of_memory" });
  withSession(bytes, (session) => {
    assert.throws(() => session.run({ shape: [2n ** 40n] }), { code: "execution_error" });
    assert.deepEqual(listed(session.run({ shape: [3] }).y), [0]);
  });
});

test("inputs that do not fit are refused with what was expected", () =>
  withSession(identity("float32", ["n", 2]), (session) => {
    /** @type {[any, RegExp][]} */
    const cases = [
      [{}, /`x` is missing/],
      [{ x: [[1, 2]], z: [1] }, /`z` is not known; choose from `x`/],
      [{ x: [1, 2] }, /shape \(2,\), expected \(n, 2\)/],
      [{ x: [[1, 2, 3]] }, /expected \(n, 2\)/],
      [{ x: new Float64Array(2) }, /Float64Array, expected a Float32Array/],
      [{ x: { data: new Float32Array(2), dtype: "int8", shape: [1, 2] } }, /dtype int8, expected float32/],
      [{ x: { data: new Float32Array(3), shape: [1, 2] } }, /3 elements, expected 2/],
      [{ x: [[1, 2], [3]] }, /ragged/],
      [{ x: [["a", "b"]] }, /element a/],
    ];
    for (const [feeds, said] of cases) {
      assert.throws(
        () => session.run(feeds),
        (/** @type {EdgeInferError} */ error) => error.code === "input_error" && said.test(error.message),
        String(said),
      );
    }
    assert.throws(() => session.run({ x: [[1, 2]] }, { outputs: ["z"] }), /Output `z` is not known/);
  }));

test("an address without the engine says what to install", async () => {
  await assert.rejects(startOrtEngine({ base: "http://127.0.0.1:1/" }), { code: "backend_unavailable" });
});

test("a folder without the engine gives way to that of its package in Node", async () => {
  const found = await startOrtEngine({ base: new URL("./", import.meta.url) });

  assert.equal(found.version, "1.30.0");
});

test("every dtype of Python's table is here", () => {
  assert.equal(Object.keys(DTYPES).length, 16);
});

test("an output of the same length comes in memory that is spare, and in none that is not", () =>
  withSession(identity("float32", ["n"]), (session) => {
    const [fitting, other] = [new ArrayBuffer(8), new ArrayBuffer(16)];
    const spare = [other, fitting];
    const first = session.run({ x: new Float32Array(fitting).fill(3) }, { spare }).y;
    const second = session.run({ x: Float32Array.of(5, 6) }, { spare }).y;

    assert.equal(first.data.buffer, fitting);
    assert.notEqual(second.data.buffer, fitting);
    assert.deepEqual([[...first.data], [...second.data], spare], [[3, 3], [5, 6], [other]]);
  }));
