/** What a page does with the versions that its worker brings: each pull is settled, and only bad versions are refused. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../src/cache/store.js";
import { bundleOfFiles } from "../src/bundle/in-memory.js";
import { follow } from "../src/page/follow.js";
import { LiveModel } from "../src/page/live.js";
import { StoreModel } from "../src/sync/pull.js";
import { EdgeInferError } from "../src/errors.js";
import { isHalted } from "../src/sync/advice.js";
import { serve } from "./local-server.js";
import { memoryPlace } from "./place.js";

/** @type {Map<string, Promise<unknown>>} */
const held = new Map();
const locks = {
  request(/** @type {string} */ name, /** @type {unknown} */ _options, /** @type {() => Promise<unknown>} */ work) {
    const before = held.get(name) ?? Promise.resolve();
    const answer = before.then(work);
    held.set(name, answer.catch(() => {}));
    return answer;
  },
};
Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
globalThis.Worker = /** @type {any} */ (class {
  postMessage() {}
  terminate() {}
});

/** @param {string} bundle @returns {any} */
const version = (bundle) => ({ isNew: true, bundle, model: "m", version: bundle, sequence: 1, stage: 0, device: "d", method: "full", bytesMoved: 0, bytesFull: 0, note: "", files: [] });

/**
 * A page whose worker is here, and brings what it is told to.
 *
 * @param {string} address
 * @param {() => Promise<any>} bring
 */
function page(address, bring) {
  const model = new StoreModel(address, new Store(memoryPlace(), ""));
  model.run = bring;
  const live = new LiveModel(address, "https://host/", {});
  /** @type {string[]} */
  const settled = [];
  /** Requests are answered one after the other. @type {Promise<unknown>} */
  let last = Promise.resolve();
  live.worker.request = (/** @type {any} */ body, { signal } = {}) => {
    if (body.kind === "settle") settled.push(body.result);
    const answer = last.then(/** @returns {Promise<any>} */ () => (body.kind === "pull" ? model.pull({ root: "" }) : model.settle(body.result)));
    last = answer.catch(() => {});
    if (!signal) return answer;
    return Promise.race([answer, new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))]);
  };
  const take = (/** @type {(pulled: any) => Promise<unknown>} */ run = async () => "taken", /** @type {AbortSignal} */ signal = new AbortController().signal) =>
    live.take({ mayBeOld: false, signal }, run);
  return { live, model, settled, take };
}

test("a version that runs already and is new to the storage is settled", async () => {
  const { take, model } = page("https://host/store/same", async () => version("x"));
  assert.equal((await take()).update.changed, true);
  for (let i = 0; i < 2; i++) assert.equal((await take()).update.changed, false);
  assert.equal(model.pulled, undefined);
});

test("a pull that was given up at its very end leaves the next one its turn", async () => {
  let arrive = (/** @type {any} */ _version) => {};
  const arrived = new Promise((resolve) => (arrive = resolve));
  const { take, settled } = page("https://host/store/late", () => arrived);
  const controller = new AbortController();
  const late = take(undefined, controller.signal);
  controller.abort(new Error("enough"));
  await assert.rejects(late, /enough/);
  arrive(version("x"));

  assert.equal((await take()).taken, "taken");
  assert.deepEqual(settled, ["undecided", "active"]);
});

const entry = (/** @type {string} */ path) => ({ path, size: 1, sha256: "0".repeat(64) });
const manifest = {
  schema_version: "1.0",
  name: "m",
  version: "1",
  inputs: [],
  outputs: [],
  variants: [{ id: "onnx/fp32", format: "onnx", precision: "fp32", file: "a.onnx" }],
  files: [entry("a.onnx")],
};
/** @type {import("../src/page/protocol.js").Files} */
const files = [
  ["manifest.json", new TextEncoder().encode(JSON.stringify(manifest))],
  ["a.onnx", new Uint8Array(1)],
];

test("a version is not refused for what the page asked for, nor for the machine", async () => {
  const { take, settled } = page("https://host/store/fault", async () => version("x"));
  await assert.rejects(take(() => bundleOfFiles(files, { variant: "onnx/typo" })), { code: "input_error" });
  await assert.rejects(take(() => bundleOfFiles(files, { backend: "litert" })), { code: "input_error" });
  for (const code of ["out_of_memory", "backend_unavailable"]) {
    await assert.rejects(take(() => Promise.reject(new EdgeInferError("no", code))), { code });
  }
  assert.deepEqual(settled, new Array(4).fill("undecided"));

  await assert.rejects(take(() => Promise.reject(new EdgeInferError("no", "execution_error"))), { code: "trial_failed" });
  assert.equal(settled.at(-1), "refused");
});

test("each beginning of a trial is counted", async () => {
  const store = new Store(memoryPlace(), "");
  const model = new StoreModel("https://host/store/m", store);
  const read = async () => (await model.record()).read();
  for (let visit = 1; visit < 4; visit++) {
    await new StoreModel("https://host/store/m", store).begin("x");
    assert.deepEqual([(await read()).trial, (await read()).trials], ["x", visit]);
  }
});

/**
 * Follow with a clock of our own.
 *
 * @param {() => Promise<any>} look
 * @param {import("../src/page/follow.js").FollowOptions} options
 * @param {number} looks How many there are at most.
 */
async function delaysOf(look, options, looks) {
  const real = globalThis.setTimeout;
  /** @type {number[]} */
  const delays = [];
  globalThis.setTimeout = /** @type {any} */ (
    (/** @type {() => void} */ run, /** @type {number} */ milliseconds) => {
      delays.push(milliseconds);
      if (delays.length <= looks) queueMicrotask(run);
    }
  );
  try {
    const end = follow(look, "https://host/store/m", { events: false, ...options });
    await new Promise((resolve) => real(resolve, 0));
    end();
  } finally {
    globalThis.setTimeout = real;
  }
  return delays.slice(1);
}

test("no wait is longer than a timer can be", async () => {
  const delays = await delaysOf(() => Promise.reject(new Error("down")), { intervalS: 86400 }, 20);
  assert.equal(delays.length, 20);
  assert.ok(Math.max(...delays) === 2 ** 31 - 1, `${delays}`);
});

test("a page that waits for its share of a roll-out looks as often as ever", async () => {
  const delays = await delaysOf(() => Promise.reject(new EdgeInferError("wait", "not_released")), { intervalS: 10 }, 20);
  assert.ok(Math.max(...delays) <= 15_000, `${delays}`);
});

test("watching goes on where the page's own function throws", async () => {
  /** @type {unknown[]} */
  const thrown = [];
  const note = (/** @type {unknown} */ error) => void thrown.push(error);
  const others = process.listeners("unhandledRejection");
  process.removeAllListeners("unhandledRejection");
  process.on("unhandledRejection", note);
  const onError = () => {
    throw new Error("of the page");
  };
  const delays = await delaysOf(() => Promise.reject(new Error("down")), { onError }, 3);
  await new Promise((resolve) => setImmediate(resolve));
  process.off("unhandledRejection", note);
  for (const other of others) process.on("unhandledRejection", other);
  assert.equal(delays.length, 3);
  assert.equal(thrown.length, 3);
});

test("a page asks whether a step of a roll-out is halted, and goes on where nobody can say", async () => {
  let answer = JSON.stringify({ halts: [{ model: "m", sequence: 3, stage: 2, failed: 3, tried: 4 }] });
  /** @type {(string | undefined)[]} */
  const asked = [];
  const origin = await serve((request, response) => {
    asked.push(request.url);
    response.setHeader("Content-Type", "application/json");
    response.end(answer);
  });
  assert.equal(await isHalted(`${origin}/store/`, "m", 3, 2), true);
  assert.deepEqual(asked, ["/sync/v1/advice?model=m"]);
  assert.equal(await isHalted(`${origin}/store/`, "m", 3, 3), false, "the next step has a number of its own");
  assert.equal(await isHalted(`${origin}/store/`, "m", 4, 2), false);
  for (const bad of ["", "[]", "{}", '{"halts": 7}', '{"halts": [null]}', "[".repeat(100_000), " ".repeat(2 ** 20 + 1)]) {
    answer = bad;
    assert.equal(await isHalted(`${origin}/store/`, "m", 3, 2), false, bad.slice(0, 20));
  }
  assert.equal(await isHalted("http://127.0.0.1:9/store/", "m", 3, 2), false);
  await assert.rejects(isHalted(`${origin}/store/`, "m", 3, 2, AbortSignal.abort(new Error("given up"))), /given up/);
});
