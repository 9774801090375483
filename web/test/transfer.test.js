// Downloads over servers that cut, stall, know no ranges, or send something else.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { download, downloadBytes } from "../src/fetch/download.js";
import { listed } from "../src/fetch/listed.js";
import { sha256, sha256Plain } from "../src/fetch/sha256.js";
import { PART_BYTES, goodBytes, transfer } from "../src/fetch/transfer.js";
import { Store } from "../src/cache/store.js";
import { memoryPlace } from "./place.js";
import { serve } from "./local-server.js";

const digest = (/** @type {Uint8Array} */ bytes) => createHash("sha256").update(bytes).digest("hex");
const content = Uint8Array.from({ length: 3 * PART_BYTES + 12345 }, (_, i) => (i * 31 + (i >> 10)) & 255);
const parts = Array.from({ length: 4 }, (_, i) => digest(content.subarray(i * PART_BYTES, (i + 1) * PART_BYTES)));
const entry = { path: "onnx/model.onnx", size: content.length, sha256: digest(content), parts };

/** What the server does with each request, the last one for all that follow. @type {((from: number, response: import("node:http").ServerResponse) => void)[]} */
let script = [];
/** @type {number[]} */
let asked = [];
const origin = await serve((request, response) => {
  const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
  asked.push(from);
  (script.length > 1 ? script.shift() : script[0])?.(from, response);
});
const url = new URL(`${origin}/onnx/model.onnx`);

/** @param {typeof script} steps */
function scripted(...steps) {
  script = steps;
  asked = [];
}

const head = (/** @type {number} */ from) => ({
  "content-length": content.length - from,
  "content-range": `bytes ${from}-${content.length - 1}/${content.length}`,
});
/** @type {(from: number, response: import("node:http").ServerResponse) => void} */
const whole = (from, response) => response.writeHead(from > 0 ? 206 : 200, head(from)).end(content.subarray(from));
const cutAfter = (/** @type {number} */ bytes) => (/** @type {number} */ from, /** @type {import("node:http").ServerResponse} */ response) => {
  response.writeHead(from > 0 ? 206 : 200, head(from));
  response.write(content.subarray(from, from + bytes), () => setTimeout(() => response.destroy(), 20));
};
/** @type {typeof whole} */
const withoutRanges = (_, response) => response.writeHead(200, { "content-length": content.length }).end(content);

test("what was read to its end is waited for until it is listed", async (context) => {
  scripted(whole);
  const timings = context.mock.method(performance, "getEntriesByName", (/** @type {string} */ name) => (timings.mock.callCount() < 3 ? [] : [name]));

  await downloadBytes(url, { phase: "model" });
  await transfer(url, entry, {});
  assert.equal(timings.mock.callCount(), 0);
  await listed();
  assert.equal(timings.mock.callCount(), 4);
  await listed(); // once
  assert.equal(timings.mock.callCount(), 4);
});

test("a download that is cut goes on from its last good part", async () => {
  scripted(cutAfter(1.5 * PART_BYTES), cutAfter(1.2 * PART_BYTES), whole);
  /** @type {number[]} */
  const written = [];

  const bytes = await transfer(url, entry, { onPart: async (offset) => void written.push(offset) });

  assert.ok(digest(bytes) === entry.sha256);
  assert.deepEqual(asked, [0, PART_BYTES, 2 * PART_BYTES]);
  assert.deepEqual(written, [0, 1, 2, 3].map((part) => part * PART_BYTES));
});

test("a download goes on from what another visit left", async () => {
  scripted(whole);

  const bytes = await transfer(url, entry, { have: content.subarray(0, 2 * PART_BYTES) });

  assert.ok(digest(bytes) === entry.sha256);
  assert.deepEqual(asked, [2 * PART_BYTES]);
});

test("a file goes into the memory that is given for it: downloaded, continued and kept", async () => {
  const place = memoryPlace();
  const store = new Store(place, "");
  const large = new Uint8Array(content.length + 200);
  const into = (/** @type {number} */ size) => large.subarray(100, 100 + size);
  const steps = [
    { script: [cutAfter(1.5 * PART_BYTES), whole], asked: [0, PART_BYTES], isKept: false },
    { kept: content.subarray(0, 2 * PART_BYTES), script: [whole], asked: [2 * PART_BYTES], isKept: false },
    { kept: Uint8Array.of(...content.subarray(0, 99), 0), script: [whole], asked: [0], isKept: false },
    { kept: new Uint8Array(content.length + 1), script: [whole], asked: [0], isKept: false },
    { kept: content, script: [whole], asked: [], isKept: true },
  ];
  for (const step of steps) {
    large.fill(0);
    if (step.kept) place.files.set(entry.sha256, Uint8Array.from(step.kept));
    scripted(...step.script);

    const { bytes, isKept } = await store.file(url, entry, "model", { into });

    assert.ok(bytes.buffer === large.buffer && bytes.byteOffset === 100 && digest(bytes) === entry.sha256);
    assert.deepEqual([isKept, asked], [step.isKept, step.asked]);
    assert.deepEqual([large[99], large[100 + content.length]], [0, 0]);
  }
});

test("a server without ranges sends it again from the start", async () => {
  scripted(cutAfter(2.5 * PART_BYTES), withoutRanges);

  const bytes = await transfer(url, entry, {});

  assert.ok(digest(bytes) === entry.sha256);
  assert.deepEqual(asked, [0, 2 * PART_BYTES]);
});

test("a server that gives another range is asked for the whole file", async () => {
  scripted((_, response) => response.writeHead(206, head(7)).end(content.subarray(7)), withoutRanges);

  const bytes = await transfer(url, entry, { have: content.subarray(0, PART_BYTES) });

  assert.ok(digest(bytes) === entry.sha256);
});

test("a download that is cut again and again says how far it came", async () => {
  scripted(cutAfter(1.1 * PART_BYTES), (_, response) => response.destroy());

  await assert.rejects(transfer(url, entry, {}), (/** @type {any} */ error) =>
    error.code === "fetch_error" && error.details.loaded === PART_BYTES && /was cut after 1048576 of/.test(error.message));
});

test("a server that stands still is left", async () => {
  scripted(() => {});

  await assert.rejects(transfer(url, entry, { stallMs: 30 }), { code: "fetch_error", message: /nothing came for 0.03 s/ });
});

test("a server that stands still is left by what has no hashes too", async () => {
  const stop = /** @type {typeof whole} */ ((_, response) => void response.writeHead(200, head(0)).write(content.subarray(0, 1000)));
  scripted(stop);
  await assert.rejects(downloadBytes(url, { phase: "engine", stallMs: 2000 }), {
    code: "fetch_error",
    message: /was cut after 1000 bytes: nothing came for 2 s/,
  });

  scripted(() => {});
  await assert.rejects(download(url, { phase: "engine", stallMs: 30 }), { code: "fetch_error", message: /reached: nothing came/ });
});

test("a reader that takes its time is no server that stands still", async (context) => {
  scripted(whole);
  /** @type {() => void} */
  let onProgress = () => {};
  const begun = new Promise((resolve) => (onProgress = () => resolve(undefined)));
  // Only the download's own alarms ring: time that passes for Node's fetch too rings alarms of its old connections.
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const [alarms, stallMs] = [new Set(), 77_777];
  context.mock.method(globalThis, "setTimeout", (/** @type {() => void} */ ring, /** @type {number} */ ms) => {
    if (ms !== stallMs) return set(ring, ms);
    alarms.add(ring);
    return ring;
  });
  context.mock.method(globalThis, "clearTimeout", (/** @type {any} */ timer) => alarms.delete(timer) || clear(timer));
  const response = await download(url, { phase: "engine", onProgress, stallMs });
  await begun;
  for (const ring of alarms) ring();

  assert.ok(digest(new Uint8Array(await response.arrayBuffer())) === entry.sha256);
});

test("a changed part is refused where it is", async () => {
  const changed = content.slice();
  changed[PART_BYTES + 5] ^= 1;
  scripted((_, response) => response.writeHead(200, { "content-length": changed.length }).end(changed));

  await assert.rejects(transfer(url, entry, {}), { code: "integrity_error", message: /part 2 of 4/ });
});

test("an HTML page is not a model", async () => {
  scripted((_, response) => response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end("<!doctype html>"));

  await assert.rejects(transfer(url, entry, {}), { code: "fetch_error", message: /HTML page/ });
});

test("a file that is longer or shorter is refused", async () => {
  scripted((_, response) => response.writeHead(200).end(Buffer.concat([content, content.subarray(0, 1)])));
  await assert.rejects(transfer(url, entry, {}), { code: "integrity_error", message: /more than/ });
  scripted((_, response) => response.writeHead(200).end(content.subarray(1)));
  await assert.rejects(transfer(url, { ...entry, parts: undefined }, {}), { code: "integrity_error", message: /3158072 bytes/ });
});

/** Firefox reads the cut of a compressed body as its end. @type {(bytes: number) => typeof whole} */
const endAfter = (bytes) => (from, response) => {
  const { "content-length": _, ...headers } = head(from);
  response.writeHead(from > 0 ? 206 : 200, headers).end(content.subarray(from, from + bytes));
};

test("a body that ends early without an error is cut, while its parts are right", async () => {
  scripted(endAfter(1.5 * PART_BYTES), whole);

  const bytes = await transfer(url, entry, {});

  assert.ok(digest(bytes) === entry.sha256);
  assert.deepEqual(asked, [0, PART_BYTES]);
});

test("a file that ends twice at the same place is too short", async () => {
  const short = /** @type {typeof whole} */ ((from, response) => endAfter(2.5 * PART_BYTES - from)(from, response));
  scripted(short);

  await assert.rejects(transfer(url, entry, {}), { code: "integrity_error", message: /2621440 bytes/ });
  assert.deepEqual(asked, [0, 2 * PART_BYTES]);
});

test("a file of known size without hashes goes on where it was cut, whether the server knows ranges or not", async () => {
  const settings = { phase: /** @type {const} */ ("engine"), total: content.length };
  scripted(cutAfter(1000), endAfter(2000), withoutRanges);
  assert.ok(digest(await downloadBytes(url, settings)) === entry.sha256);
  assert.deepEqual(asked, [0, 1000, 3000]);

  scripted(cutAfter(1000), (_, response) => response.destroy());
  await assert.rejects(downloadBytes(url, settings), { code: "fetch_error", message: /was cut after 1000 bytes: the server cannot be reached/ });
  assert.equal(asked.length, 4);
});

test("a file of another size that the server sends whole is not asked for again", async () => {
  scripted(withoutRanges);
  const bytes = await downloadBytes(url, { phase: "engine", total: content.length + 1 });
  assert.equal(bytes.length, content.length);
  assert.equal(asked.length, 1);
});

test("a signal ends it with its reason", async () => {
  const controller = new AbortController();
  scripted((from, response) => {
    cutAfter(PART_BYTES)(from, response);
    controller.abort(new Error("enough"));
  });

  await assert.rejects(transfer(url, entry, { signal: controller.signal }), { message: "enough" });
});

test("only what is right counts as there", async () => {
  const damaged = content.slice();
  damaged[PART_BYTES] ^= 1;

  assert.equal(await goodBytes(content, entry), content.length);
  assert.equal(await goodBytes(content.slice(0, -1), entry), 3 * PART_BYTES);
  assert.equal(await goodBytes(damaged, entry), PART_BYTES);
  assert.equal(await goodBytes(content.slice(0, 100), { ...entry, parts: undefined }), 0);
  assert.equal(await goodBytes(content, { ...entry, parts: undefined }), content.length);
});

test("SHA-256 in JavaScript is SHA-256", async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 70000]) {
    const bytes = content.slice(0, length);
    assert.equal(Buffer.from(sha256Plain(bytes)).toString("hex"), digest(bytes), `${length} bytes`);
    assert.equal(await sha256(bytes), digest(bytes));
  }
});
