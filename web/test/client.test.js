/** The page's end of a worker, over one that answers by hand. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { WorkerClient, openWorkers } from "../src/page/client.js";

class FakeWorker {
  /** @type {any[]} */
  sent = [];
  /** @type {((event: any) => void) | undefined} */
  onerror = undefined;
  isTerminated = false;
  /** @param {any} message @param {Transferable[]} transfer */
  postMessage(message, transfer) {
    this.sent.push(structuredClone(message, { transfer: /** @type {any} */ (transfer ?? []) }));
  }
  terminate() {
    this.isTerminated = true;
  }
  addEventListener() {}
}
test("Python is refused where there are no workers", async () => {
  const { loadPython } = await import("../src/index.js");

  await assert.rejects(loadPython(), { code: "unsupported", hint: /service worker and Node/ });
});


/** @returns {{client: WorkerClient, worker: FakeWorker}} */
function started() {
  globalThis.Worker = /** @type {any} */ (FakeWorker);
  const client = new WorkerClient("test");
  return { client, worker: /** @type {any} */ (client.worker) };
}

test("where a bundler has written no worker, that of the copied modules is started, and asked", async () => {
  globalThis.Worker = /** @type {any} */ (FakeWorker);
  const client = new WorkerClient("test", { root: "https://site.org/edge-infer/" });
  const first = /** @type {any} */ (client.worker);
  const answer = client.request(run());
  first.onerror({ preventDefault() {} });
  const second = /** @type {any} */ (client.worker);
  assert.deepEqual([first.sent.length, first.isTerminated, second.sent.length], [0, true, 1]);
  client.receive({ kind: "result", id: second.sent[0].id, value: 1 });
  assert.equal(await answer, 1);

  second.onerror({ preventDefault() {} });
  await assert.rejects(client.request(run()), { code: "backend_unavailable" });
});

test("what is asked of a worker that may be replaced waits until it says that it is there", () => {
  globalThis.Worker = /** @type {any} */ (FakeWorker);
  const client = new WorkerClient("test", { root: "https://site.org/edge-infer/" });
  const worker = /** @type {any} */ (client.worker);
  void client.request(run());
  assert.equal(worker.sent.length, 0);

  client.receive({ kind: "ready" });

  assert.equal(worker.sent.length, 1);
});

/** @param {unknown} [outputs] @returns {any} */
const run = (outputs) => ({ kind: "run", session: 1, inputs: {}, outputs });
const uncloneable = () => {};

test("a request that cannot be cloned fails alone", async () => {
  const { client, worker } = started();
  const { signal } = new AbortController();
  await assert.rejects(client.request(run(uncloneable)), { name: "DataCloneError" });
  const first = client.request(run(), { signal });
  const bad = client.request(run(uncloneable), { signal });
  const last = client.request(run(), { signal });
  assert.equal(worker.sent.length, 1, "the others wait for their turn");

  client.receive({ kind: "result", id: worker.sent[0].id, value: 1 });
  assert.equal(await first, 1);
  await assert.rejects(bad, { name: "DataCloneError" });
  client.receive({ kind: "result", id: worker.sent[1].id, value: 2 });
  assert.equal(await last, 2);
  assert.equal(client.waiting.size, 0);
});

test("a signal that outlives its requests keeps none of them", async () => {
  const { client, worker } = started();
  const controller = new AbortController();
  for (let i = 0; i < 5; i++) {
    const answered = client.request(run(), { signal: controller.signal });
    client.receive({ kind: "result", id: worker.sent[i].id, value: i });
    await answered;
  }
  assert.equal(getEventListeners(controller.signal, "abort").length, 0);

  const given = client.request(run(), { signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(given, /enough/);
  assert.equal(worker.sent.at(-1).kind, "abort");
});

test("a worker that failed takes no more requests, and says why", async () => {
  const { client, worker } = started();
  const waiting = client.request(run());
  worker.onerror?.({ preventDefault() {}, message: "no such module" });

  await assert.rejects(waiting, { code: "backend_unavailable", message: /no such module/ });
  await assert.rejects(client.request(run()), { code: "backend_unavailable", message: /no such module/ });
  assert.ok(worker.isTerminated && !openWorkers.has(client));
});
