/** How many threads an engine takes: what the page can give, with one warning where that is less than it seems. */

import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

const SCRIPT = new URL("https://a.org/vendor/engine.mjs");
const before = Object.getOwnPropertyDescriptors(globalThis);

/**
 * @param {{isIsolated: boolean, cpus: number, hasSharedMemory?: boolean}} page
 * @returns {Promise<{threadsFor: (wanted: number | undefined, script: URL) => number, whyThreads: (wanted: number | undefined, script: URL) => string, warnings: string[]}>}
 */
async function pageWith({ isIsolated, cpus, hasSharedMemory = true }) {
  const set = (/** @type {string} */ name, /** @type {unknown} */ value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  set("crossOriginIsolated", isIsolated);
  set("navigator", { hardwareConcurrency: cpus });
  set("location", new URL("https://a.org/page.html"));
  set("origin", "https://a.org");
  if (!hasSharedMemory) set("SharedArrayBuffer", undefined);
  /** @type {string[]} */
  const warnings = [];
  mock.method(console, "warn", (/** @type {string} */ text) => warnings.push(text));
  const { threadsFor, whyThreads } = await import(`../src/engines/threads.js?${Math.random()}`); // its warning is once a page
  return { threadsFor, whyThreads, warnings };
}

afterEach(() => {
  mock.restoreAll();
  for (const name of ["crossOriginIsolated", "navigator", "location", "origin", "SharedArrayBuffer"]) {
    if (before[name]) Object.defineProperty(globalThis, name, before[name]);
    else Reflect.deleteProperty(globalThis, name);
  }
});

for (const [cpus, threads] of [[1, 1], [2, 1], [4, 2], [8, 4], [64, 4]]) {
  test(`an isolated page with ${cpus} processors takes ${threads} threads`, async () => {
    const { threadsFor, warnings } = await pageWith({ isIsolated: true, cpus });

    assert.equal(threadsFor(undefined, SCRIPT), threads);
    assert.equal(threadsFor(3, SCRIPT), 3);
    assert.deepEqual(warnings, []);
  });
}

test("outside an isolated page an engine takes one thread", async () => {
  const { threadsFor, whyThreads, warnings } = await pageWith({ isIsolated: false, cpus: 8 });

  assert.match(whyThreads(undefined, SCRIPT), /not cross-origin isolated; .*COOP/);
  assert.equal(whyThreads(1, SCRIPT), "asked for");
  assert.equal(threadsFor(undefined, SCRIPT), 1);
  assert.throws(() => threadsFor(2, SCRIPT), { code: "unsupported", message: /cross-origin isolated/ });
  assert.deepEqual(warnings, []);
});

test("an engine of another origin takes one thread, and says why once", async () => {
  const { threadsFor, warnings } = await pageWith({ isIsolated: true, cpus: 8 });
  const elsewhere = new URL("https://cdn.org/engine.mjs");

  assert.deepEqual([threadsFor(undefined, elsewhere), threadsFor(undefined, elsewhere)], [1, 1]);
  assert.match(warnings.join(), /another origin, https:..cdn.org/);
  assert.equal(warnings.length, 1);
  assert.throws(() => threadsFor(2, elsewhere), { code: "unsupported", hint: /own origin/ });
});

test("a browser without SharedArrayBuffer takes one thread, isolated or not", async () => {
  const { threadsFor, warnings } = await pageWith({ isIsolated: true, cpus: 8, hasSharedMemory: false });

  assert.equal(threadsFor(undefined, SCRIPT), 1);
  assert.match(warnings.join(), /no SharedArrayBuffer/);
});

test("a start with threads that fails is blamed on the page's policy only where the browser names it", async () => {
  const { hintForStart } = await import("../src/engines/threads.js");

  assert.match(hintForStart(new TypeError("Failed to construct 'Worker': This document requires 'TrustedScriptURL' assignment.")), /trusted-types edge-infer/);
  assert.match(hintForStart(new Error("Refused to create a worker: it violates the Content Security Policy directive \"worker-src\"")), /worker-src 'self' blob:/);
  assert.match(hintForStart(new RangeError("WebAssembly.Memory(): could not allocate memory")), /close other pages/);
  assert.match(hintForStart(new Error("LinkError: import object field is not a Function")), /ask for one thread/);
});
