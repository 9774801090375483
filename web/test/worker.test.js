/** The worker's end of a load that fails: what was begun for it is given back. */

import assert from "node:assert/strict";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

/** @type {Map<number, (reply: any) => void>} */
const waiting = new Map();
globalThis.self = /** @type {any} */ ({ postMessage: (/** @type {any} */ reply) => waiting.get(reply.id)?.(reply) });
let destroyed = parts();
const device = { features: new Set(), destroy: () => destroyed.resolve(undefined) };
const adapter = { limits: {}, features: new Set(), requestDevice: async () => device };
Object.defineProperty(globalThis, "navigator", { value: { gpu: { requestAdapter: async () => adapter } }, configurable: true });
await import("../src/page/worker.js");

/** @returns {PromiseWithResolvers<any>} */
function parts() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

let id = 1;
/** @param {object} request @returns {Promise<any>} */
function ask(request) {
  const answered = new Promise((resolve) => waiting.set(id, resolve));
  self.onmessage?.(/** @type {any} */ ({ data: { ...request, id: id++ } }));
  return answered;
}

for (const [what, version] of [["the interface cannot be imported", ""], ["the model cannot be fetched", "1.30.0"]]) {
  test(`a GPU is given back where ${what}`, async (context) => {
    const folder = mkdtempSync(join(tmpdir(), "edge-infer-"));
    context.after(() => rmSync(folder, { recursive: true }));
    const engine = join(folder, "vendor/onnxruntime-web");
    mkdirSync(engine, { recursive: true });
    const script = `export const env = { versions: { web: "${version}" }, wasm: {} };`;
    for (const name of ["ort.webgpu.min.mjs", "ort.jspi.min.mjs"]) writeFileSync(join(engine, name), script);
    const files = [{ path: "a.onnx", size: 1, sha256: "0".repeat(64) }];
    const variants = [{ id: "onnx/fp32", format: "onnx", precision: "fp32", file: "a.onnx" }];
    const manifest = { schema_version: "1.0", name: "m", version: "1", inputs: [], outputs: [], variants, files };
    const bundle = [["manifest.json", new TextEncoder().encode(JSON.stringify(manifest))]]; // its model is missing
    destroyed = parts();

    const root = `${pathToFileURL(folder)}/`;
    const reply = await ask({ kind: "open", url: "", device: "webgpu", keep: false, settings: { root }, files: bundle });

    assert.equal(reply.kind, "error");
    assert.equal(reply.error.code, "bundle_error");
    await destroyed.promise;
  });
}
