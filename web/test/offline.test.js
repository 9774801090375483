import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { commonFolder, forgetOffline, keepOffline } from "../src/page/offline.js";

/** @param {any} serviceWorker */
function pageWith(serviceWorker) {
  Object.defineProperty(globalThis, "navigator", { value: { serviceWorker }, configurable: true });
  globalThis.location = /** @type {any} */ (new URL("https://a.org/page.html"));
  globalThis.caches = /** @type {any} */ ({ delete: async () => true });
}

test("a site's own service worker stays when ours is forgotten", async () => {
  const own = new URL("../src/service-worker.js", import.meta.url).href;
  /** @type {string[]} */
  const gone = [];
  const registration = (/** @type {string} */ scriptURL) => ({ active: { scriptURL }, unregister: async () => gone.push(scriptURL) });
  pageWith({ getRegistrations: async () => ["https://a.org/service-worker.js", own].map(registration) });

  await forgetOffline();

  assert.deepEqual(gone, [own]);
});

test("a service worker without our part is told of, and one that is slow is waited for", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const kept = { files: 1, bytes: 2, checked: 0 };
  /** @type {(request: object, ports: MessagePort[]) => void} */
  let hear = () => mock.timers.tick(10_000);
  const active = { state: "activated", scriptURL: "https://a.org/sw.js", postMessage: (/** @type {any} */ request, /** @type {any} */ ports) => hear(request, ports) };
  pageWith({ register: async () => ({ active }) });

  await assert.rejects(keepOffline({ script: "/sw.js" }, "https://a.org/"), { code: "unsupported", hint: /importScripts/ });

  hear = (_request, [port]) => {
    const clear = globalThis.clearTimeout;
    globalThis.clearTimeout = (timer) => {
      globalThis.clearTimeout = clear;
      clear(timer);
      mock.timers.tick(60_000);
      port.postMessage({ value: kept });
    };
    port.postMessage({ isHeard: true });
  };
  assert.deepEqual(await keepOffline({ script: "/sw.js" }, "https://a.org/"), { isKept: true, ...kept, why: "" });
  mock.timers.reset();
});

test("a service worker is active before it has claimed its pages", async () => {
  /** @type {Record<string, (event: any) => void>} */
  const listeners = {};
  let claims = 0;
  const place = /** @type {any} */ (globalThis);
  globalThis.location = /** @type {any} */ (new URL("https://a.org/service-worker.js"));
  const before = globalThis.addEventListener;
  place.addEventListener = (/** @type {string} */ kind, /** @type {() => void} */ listener) => void (listeners[kind] = listener);
  place.clients = { claim: () => new Promise(() => void (claims += 1)) };
  /** @type {Promise<unknown>[]} */
  const awaited = [];
  try {
    await import("../src/service-worker.js");
    listeners.activate({ waitUntil: (/** @type {Promise<unknown>} */ work) => awaited.push(work) });
  } finally {
    place.addEventListener = before;
    delete place.clients;
  }

  assert.equal(claims, 1);
  await Promise.all(awaited);
});

test("a service worker serves the innermost folder of the page and the engine", () => {
  const cases = [
    ["https://a.org/app/page.html", "https://a.org/app/lib/", "https://a.org/app/"],
    ["https://a.org/app/page.html", "https://a.org/", "https://a.org/"],
    ["https://a.org/app/", "https://a.org/apple/", "https://a.org/"],
    ["https://a.org/x/app/page.html", "https://a.org/x/app/", "https://a.org/x/app/"],
    ["https://a.org/x/page.html", "https://cdn.org/x/", "https://a.org/"],
  ];
  for (const [page, root, scope] of cases) assert.equal(commonFolder(page, root), scope);
});
