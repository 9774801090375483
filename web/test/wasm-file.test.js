// Engine files that a page's policy, its server or its browser does not let it have.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { compileWasm } from "../src/engines/wasm-file.js";
import { serve } from "./local-server.js";

// An empty module, and a custom section that makes it longer.
const wasm = Buffer.concat([Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 0, 0xe9, 0x07, 1, 0x61]), Buffer.alloc(999)]);
/** @type {import("../src/engines/wasm-file.js").Pinned} */
const pinned = { name: "engine", npm: "engine", version: "1.0.0", functions: [], model: "", rows: [] };
/** @type {string[]} */
let asked = [];
const origin = await serve(({ headers: { range = "" } }, response) => {
  asked.push(range);
  const from = Number(/\d+/.exec(range)?.[0] ?? 0);
  const headers = { "content-type": "application/wasm", "content-range": `bytes ${from}-${wasm.length - 1}/${wasm.length}` };
  response.writeHead(from > 0 ? 206 : 200, headers);
  if (from > 0) response.end(wasm.subarray(from));
  else response.write(wasm.subarray(0, 500), () => setTimeout(() => response.destroy(), 20));
});
const url = new URL(`${origin}/engine.wasm`);

test("an engine whose file is cut goes on where it was", async () => {
  asked = [];

  assert.ok((await compileWasm(pinned, url, wasm.length)) instanceof WebAssembly.Module);
  assert.deepEqual(asked, ["", "bytes=500-"]);
});

for (const [browser, said] of [
  ["Chromium", "WebAssembly.compileStreaming(): Compiling or instantiating WebAssembly module violates the following Content Security policy directive"],
  ["Firefox", "call to WebAssembly.compileStreaming() blocked by CSP"],
  ["WebKit", "Refused to create a WebAssembly object because 'unsafe-eval' or 'wasm-unsafe-eval' is not an allowed source of script"],
]) {
  test(`a policy without wasm is named in ${browser}, not the browser's age`, async () => {
    const compiling = mock.method(WebAssembly, "compileStreaming", async (/** @type {Promise<Response>} */ response) => {
      await (await response).arrayBuffer();
      throw new WebAssembly.CompileError(said);
    });

    await assert.rejects(compileWasm(pinned, url, wasm.length), { code: "backend_unavailable", hint: /Content-Security-Policy.*'wasm-unsafe-eval'/ });
    compiling.mock.restore();
  });
}

test("a worker of Firefox compiles whole files, and asks for nothing that waits for another page's stream", async () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { userAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0" }, configurable: true });
  Object.defineProperty(globalThis, "WorkerGlobalScope", { value: class {}, configurable: true });
  const waits = () => new Promise(() => {});
  const mocked = [mock.method(WebAssembly, "compile", waits), mock.method(WebAssembly, "compileStreaming", waits)];
  try {
    const { compileBytes, compileResponse } = /** @type {typeof import("../src/engines/wasm-module.js")} */ (
      await import(`${new URL("../src/engines/wasm-module.js", import.meta.url)}?firefox`)
    );
    assert.ok((await compileBytes(wasm)) instanceof WebAssembly.Module);
    assert.ok((await compileResponse(new Response(wasm))) instanceof WebAssembly.Module);
    await assert.rejects(compileBytes(wasm.subarray(1)), WebAssembly.CompileError);
  } finally {
    for (const one of mocked) one.mock.restore();
    Reflect.deleteProperty(globalThis, "WorkerGlobalScope");
    Reflect.deleteProperty(globalThis, "navigator");
    if (before) Object.defineProperty(globalThis, "navigator", before);
  }
});
