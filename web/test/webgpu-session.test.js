/** What becomes of a session whose GPU fails: the plain build goes on, once, and nothing stays open. */

import assert from "node:assert/strict";
import test from "node:test";

import { WebGpuSession } from "../src/engines/ort-webgpu-session.js";

/** @type {import("../src/engines/ort-webgpu-session.js").OrtMetadata[]} */
const METADATA = [{ name: "x", isTensor: true, type: "float32", shape: [1] }];
const FEEDS = { x: { data: Float32Array.of(2), dtype: "float32", shape: [1] } };

/** @param {() => Promise<void>} [open] How the plain build is opened. */
function failing(open) {
  const done = { opened: 0, closed: 0, released: 0, destroyed: 0 };
  const own = {
    inputMetadata: METADATA,
    outputMetadata: METADATA,
    run: async () => {
      throw new Error("out of memory");
    },
    release: async () => void done.released++,
  };
  const gpu = { lost: new Promise(() => {}), destroy: () => void done.destroyed++, features: new Set() };
  const openWasm = async () => {
    done.opened++;
    await open?.();
    const run = (/** @type {any} */ { x }) => ({ x: { ...x, data: x.data.map((/** @type {number} */ value) => value * 10) } });
    return { run, close: () => void done.closed++ };
  };
  const ort = /** @type {any} */ ({ Tensor: class {} });
  return { done, session: new WebGpuSession(ort, own, gpu, /** @type {any} */ (openWasm), []) };
}

test("a session that is closed while the plain build opens leaves nothing open", async () => {
  let go = () => {};
  const { done, session } = failing(() => new Promise((resolve) => (go = () => resolve())));

  const running = session.run(FEEDS);
  while (!done.opened) await Promise.resolve();
  await session.close();
  go();

  await assert.rejects(running, { code: "input_error", message: "The session is closed" });
  assert.deepEqual(done, { opened: 1, closed: 1, released: 1, destroyed: 1 });
});

test("runs that fail beside one another open the plain build once", async (context) => {
  context.mock.method(console, "warn", () => {});
  const { done, session } = failing();

  const answers = await Promise.all([session.run(FEEDS), session.run(FEEDS), session.run(FEEDS)]);
  await session.close();

  assert.deepEqual(answers.map(({ x }) => [...x.data]), [[20], [20], [20]]);
  assert.deepEqual(done, { opened: 1, closed: 1, released: 1, destroyed: 1 });
  assert.equal(session.fallbacks.length, 1);
});
