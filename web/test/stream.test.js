/** Streams: state goes from step to step, and what does not fit is named. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { streamOf } from "../src/page/stream.js";

/** @typedef {import("../src/tensors.js").TensorSpec} TensorSpec */
/** @type {(name: string, shape?: (number | string)[]) => TensorSpec} */
const spec = (name, shape = [1]) => ({ name, dtype: "float32", shape });
/** @param {number} value @returns {import("../src/tensors.js").Tensor} */
const scalar = (value) => ({ data: Float32Array.of(value), dtype: "float32", shape: [1] });
const pair = /** @type {const} */ ({ kind: "pair", out: "h_out", in: "h_in" });

/** `h_out = h_in + x`, `y = 2 * h_out`; fails where x is not finite. */
const model = { inputs: [spec("x"), spec("h_in")], outputs: [spec("y"), spec("h_out")], state: [pair] };
/** @param {Record<string, any>} inputs */
async function run({ x, h_in }) {
  if (!Number.isFinite(x.data[0])) throw new Error("not finite");
  const sum = h_in.data[0] + x.data[0];
  return { y: scalar(2 * sum), h_out: scalar(sum) };
}

test("state goes on from step to step, from zeros on, and is not among the outputs", async () => {
  const stream = streamOf(run, model);

  const steps = [1, 2, 3].map((x) => stream.step({ x: scalar(x) })); // none waits for the one before it

  assert.deepEqual((await Promise.all(steps)).map(({ y }) => y.data[0]), [2, 6, 12]);
  assert.deepEqual(Object.keys(await stream.step({ x: scalar(0) })), ["y"]);
  assert.equal(stream.state().h_in.data[0], 6);
});

test("a stream goes on from a state, and from the one before a step that failed", async () => {
  const stream = streamOf(run, model, { initial: { h_in: scalar(10) } });
  await stream.step({ x: scalar(1) });

  await assert.rejects(stream.step({ x: scalar(Number.NaN) }), /not finite/);

  assert.equal((await stream.step({ x: scalar(1) })).y.data[0], 24);
  const next = streamOf(run, model, { initial: stream.state() });
  assert.equal((await next.step({ x: scalar(0) })).y.data[0], 24);
  stream.close();
  await assert.rejects(stream.step({ x: scalar(1) }), { code: "input_error", message: /closed/ });
});

test("pairs may be named, and what does not fit is refused", async () => {
  const named = streamOf(run, { ...model, state: [] }, { state: { y: "h_in" } });
  await named.step({ x: scalar(1) });
  assert.equal(named.state().h_in.data[0], 2);

  const refused = /** @type {[object, import("../src/page/stream.js").StreamOptions, RegExp][]} */ ([
    [{ ...model, state: [] }, {}, /which output becomes which input/],
    [model, { state: { z: "h_in" } }, /no output `z`; choose from `y`, `h_out`/],
    [model, { state: { y: "z" } }, /no input `z`/],
    [model, { state: { y: "h_in", h_out: "h_in" } }, /Two outputs/],
    [model, { initial: { x: scalar(1) } }, /no state `x`; choose from `h_in`/],
    [{ ...model, inputs: [spec("x"), spec("h_in", ["batch"])] }, {}, /no fixed shape/],
  ]);
  for (const [one, options, message] of refused) assert.throws(() => streamOf(run, /** @type {any} */ (one), options), message);
  await assert.rejects(streamOf(run, model).step({ x: scalar(1), h_in: scalar(1) }), /is a state of this stream/);
});

test("a state that is hidden in the model is the engine's, and is given back once", async () => {
  let [runs, closed] = [0, 0];
  const count = async () => ({ y: scalar(++runs) });
  const stream = streamOf(count, { ...model, inputs: [spec("x")], outputs: [spec("y")], state: [{ kind: "hidden" }] }, {}, () => closed++);

  await stream.step({ x: scalar(1) });
  const second = await stream.step({ x: scalar(1) });
  stream.close();
  stream.close();

  assert.deepEqual([second.y.data[0], stream.state(), closed], [2, {}, 1]);
  await assert.rejects(stream.step({ x: scalar(1) }), /closed/);
});
