/** Manifests that lie, the choice of a variant, and downloads from a real server. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";

import { fetchBundle } from "../src/bundle/bundle.js";
import { bundleOfFiles } from "../src/bundle/in-memory.js";
import { parseManifest } from "../src/bundle/manifest.js";
import { chooseVariant, engineOf } from "../src/bundle/selection.js";

const model = new TextEncoder().encode("the bytes of a model");
const digest = (/** @type {Uint8Array} */ bytes) => createHash("sha256").update(bytes).digest("hex");

/** @param {Record<string, unknown>} [changes] @returns {any} */
function manifest(changes = {}) {
  return {
    schema_version: "1.0",
    name: "tiny",
    version: "1",
    inputs: [],
    outputs: [],
    variants: [
      { id: "onnx/fp32", format: "onnx", precision: "fp32", file: "onnx/model.onnx", targets: ["any"] },
      { id: "onnx/int8", format: "onnx", precision: "int8", file: "onnx/model_int8.onnx", targets: ["any"] },
    ],
    files: ["onnx/model.onnx", "onnx/model_int8.onnx"].map((path) => ({ path, size: model.length, sha256: digest(model) })),
    ...changes,
  };
}

const encoded = (/** @type {unknown} */ value) => new TextEncoder().encode(JSON.stringify(value));

test("a manifest that lies is refused, with the field named", () => {
  const file = manifest().files[0];
  const variant = manifest().variants[0];
  /** @type {[string, unknown, RegExp][]} */
  const cases = [
    ["no JSON", undefined, /is not JSON/],
    ["a list", [], /holds no object/],
    ["no version", manifest({ schema_version: undefined }), /schema_version/],
    ["a later version", manifest({ schema_version: "2.0" }), /reads 1\.x/],
    ["a chain that is none", manifest({ chain: [] }), /`chain` that is no object/],
    ["a reserved field of a variant", manifest({ variants: [{ ...variant, generate: {} }] }), /`generate`, which is reserved/],
    ["a generation that is no object", manifest({ generate: "decoder" }), /no object/],
    ["a generation of no kind", manifest({ generate: {} }), /without a `kind`/],
    ["a tokenizer that is not there", manifest({ generate: { kind: "decoder/1", tokenizer: "tokenizer.json" } }), /tokenizer `tokenizer.json`/],
    ["state of no known kind", manifest({ variants: [{ ...variant, state: [{ kind: "pair", out: "h" }] }] }), /state has no kind/],
    ["state that is no list", manifest({ variants: [{ ...variant, state: 1 }] }), /state is no list/],
    ["nothing in place of a variant", manifest({ variants: [null] }), /`null` in place of a variant/],
    ["no variant", manifest({ variants: [] }), /no variant/],
    ["one id twice", manifest({ variants: [variant, variant] }), /a variant twice/],
    ["one file twice", manifest({ files: [file, file] }), /twice/],
    ["no such file", manifest({ variants: [{ ...variant, file: "onnx/other.onnx" }] }), /does not list/],
    ...["/etc/passwd", "../model.onnx", "a//b", "c:\\model", "a/./b", ""].map(
      (path) => /** @type {[string, unknown, RegExp]} */ ([path, manifest({ files: [{ ...file, path }] }), /leaves the bundle/]),
    ),
    ["a size of text", manifest({ files: [{ ...file, size: "1" }] }), /no size/],
    ["a short sha256", manifest({ files: [{ ...file, sha256: "00" }] }), /no sha256/],
  ];
  for (const [what, document, said] of cases) {
    const bytes = document === undefined ? Uint8Array.of(0xff) : encoded(document);
    assert.throws(
      () => parseManifest(bytes),
      (/** @type {any} */ error) => error.code === "manifest_error" && said.test(error.message),
      what,
    );
  }
  assert.throws(() => parseManifest(new Uint8Array(16 * 2 ** 20 + 1)), /at most/);
});

test("a bundle that is a chain is refused with what opens it", () => {
  const chain = parseManifest(encoded(manifest({ variants: [], chain: {} })));
  assert.throws(() => chooseVariant(chain), (/** @type {any} */ error) => error.code === "unsupported" && error.hint.includes("openChain"));
});

test("a page takes int8 first, of those made for it", () => {
  const chosen = (/** @type {any[]} */ variants, /** @type {string} */ id) => chooseVariant(manifest({ variants }), id).id;
  const [fp32, int8] = manifest().variants;
  const fp16 = { ...fp32, id: "onnx/fp16", precision: "fp16", targets: ["web"] };
  const tflite = { ...fp32, id: "tflite/int8", precision: "int8", format: "tflite" };

  assert.equal(chosen([fp32, fp16, int8], /** @type {any} */ (undefined)), "onnx/int8");
  assert.equal(chosen([fp16, tflite, fp32], /** @type {any} */ (undefined)), "onnx/fp32");
  assert.equal(chosen([fp16, { ...int8, targets: ["pi"] }], /** @type {any} */ (undefined)), "onnx/fp16");
  assert.equal(chosen([fp16, { ...int8, targets: ["pi"] }], "onnx/int8"), "onnx/int8");
  assert.equal(chosen([tflite], /** @type {any} */ (undefined)), "tflite/int8", "where there is no other");
  const other = { ...fp32, format: "mlmodel" };
  assert.throws(() => chosen([other], /** @type {any} */ (undefined)), { code: "unsupported_model" });
  const decoder = { ...fp32, id: "decoder/int4", format: "decoder", precision: "int4" };
  assert.equal(chosen([decoder, fp32], /** @type {any} */ (undefined)), "onnx/fp32", "decoders are passed over");
  assert.throws(() => chosen([decoder], /** @type {any} */ (undefined)), { code: "unsupported_model", message: /is a decoder/ });
  assert.throws(() => chosen([fp32], "onnx/int4"), { code: "input_error" });
});

test("a compiled variant that is made for pages comes first, but for a GPU", () => {
  const [fp32, int8] = manifest().variants;
  const compiled = { ...fp32, id: "compiled/fp32", format: "compiled" };
  const variants = manifest({ variants: [fp32, int8, compiled] });
  const slower = manifest({ variants: [fp32, { ...compiled, targets: ["pi"] }] });

  assert.equal(chooseVariant(variants).id, "compiled/fp32");
  assert.equal(chooseVariant(variants, undefined, "ort").id, "onnx/int8");
  assert.equal(chooseVariant(variants, undefined, undefined, { formats: ["onnx", "compiled"] }).id, "onnx/int8");
  assert.equal(chooseVariant(slower).id, "onnx/fp32");
  assert.equal(chooseVariant(slower, undefined, "compiled").id, "compiled/fp32");
  assert.equal(engineOf("compiled"), "compiled");
  assert.throws(() => engineOf("mlmodel"), { code: "unsupported_model" });
});

test("an engine or a GPU that is asked for decides on the format and the precision", () => {
  const [fp32, int8] = manifest().variants;
  const fp16 = { ...fp32, id: "onnx/fp16", precision: "fp16", targets: ["web"] };
  const tflite = { ...fp32, id: "tflite/fp32", format: "tflite" };
  const variants = manifest({ variants: [fp32, int8, fp16, tflite] });

  assert.equal(chooseVariant(variants, undefined, "litert").id, "tflite/fp32");
  assert.equal(chooseVariant(variants, undefined, undefined, { precisions: ["fp16", "fp32", "int8"] }).id, "onnx/fp16");
  assert.throws(() => chooseVariant(variants, "tflite/fp32", "ort"), { code: "input_error" });
  assert.throws(() => chooseVariant(manifest(), undefined, "litert"), { code: "input_error" });
});

/** @type {Map<string, Uint8Array>} */
const files = new Map();
const server = createServer((request, response) => {
  if (request.url?.startsWith("/shop/") && request.headers.authorization !== "Bearer KEY") {
    response.writeHead(401).end();
    return;
  }
  const body = files.get(request.url ?? "");
  response.writeHead(body ? 200 : 404, body ? { "content-length": body.length } : {}).end(body);
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
after(() => server.close());
const address = /** @type {import("node:net").AddressInfo} */ (server.address());
const root = `http://127.0.0.1:${address.port}`;

test("a bundle is fetched, checked and reported", async () => {
  files.set("/good/manifest.json", encoded(manifest({ labels: "labels.json", files: [
    ...manifest().files,
    { path: "labels.json", size: 9, sha256: digest(new TextEncoder().encode('["a","b"]')) },
  ] })));
  files.set("/good/labels.json", new TextEncoder().encode('["a","b"]'));
  files.set("/good/onnx/model_int8.onnx", model);
  /** @type {any[]} */
  const news = [];

  const bundle = await fetchBundle(`${root}/good/`, { onProgress: (progress) => news.push(progress) });

  assert.deepEqual([bundle.name, bundle.variant.id, bundle.labels], ["tiny", "onnx/int8", ["a", "b"]]);
  assert.deepEqual(bundle.model, model);
  assert.equal(bundle.revision, digest(/** @type {Uint8Array} */ (files.get("/good/manifest.json"))));
  assert.deepEqual(news.at(-1), { phase: "model", file: "model_int8.onnx", loaded: model.length, total: model.length, cached: false });
});

test("further files of a bundle are read later, checked", async () => {
  const vocabulary = new TextEncoder().encode("{}");
  const more = ["tokenizer.json", "damaged.json"].map((path) => ({ path, size: 2, sha256: digest(vocabulary) }));
  const document = encoded(manifest({ files: [...manifest().files, ...more] }));
  files.set("/more/manifest.json", document);
  files.set("/more/onnx/model_int8.onnx", model);
  files.set("/more/tokenizer.json", vocabulary);
  files.set("/more/damaged.json", new TextEncoder().encode("[]"));
  const pulled = /** @type {import("../src/bundle/in-memory.js").Files} */ ([
    ["manifest.json", document],
    ["onnx/model_int8.onnx", model],
    ["tokenizer.json", vocabulary],
  ]);

  for (const { read } of [await fetchBundle(`${root}/more`), await bundleOfFiles(pulled)]) {
    assert.deepEqual(await read("tokenizer.json"), vocabulary);
    assert.deepEqual(await read("manifest.json"), document);
    await assert.rejects(read("other.json"), { code: "manifest_error" });
  }
  await assert.rejects((await fetchBundle(`${root}/more`)).read("damaged.json"), { code: "integrity_error" });
  files.set("/net.onnx", model);
  await assert.rejects((await fetchBundle(`${root}/net.onnx`)).read("manifest.json"), { code: "unsupported" });
});

test("a bare model is fetched without a manifest", async () => {
  files.set("/net.onnx", model);

  const bundle = await fetchBundle(`${root}/net.onnx`);

  assert.deepEqual([bundle.name, bundle.variant.id, bundle.revision], ["net", "onnx/model", digest(model)]);
});

test("a server with tenants gets the key, with every file", async () => {
  files.set("/shop/manifest.json", encoded(manifest({ labels: "labels.json", files: [
    ...manifest().files,
    { path: "labels.json", size: 9, sha256: digest(new TextEncoder().encode('["a","b"]')) },
  ] })));
  files.set("/shop/labels.json", new TextEncoder().encode('["a","b"]'));
  files.set("/shop/onnx/model_int8.onnx", model);
  files.set("/shop/net.onnx", model);

  assert.deepEqual((await fetchBundle(`${root}/shop`, { apiKey: "KEY" })).labels, ["a", "b"]);
  assert.deepEqual((await fetchBundle(`${root}/shop/net.onnx`, { apiKey: "KEY" })).model, model);
  await assert.rejects(fetchBundle(`${root}/shop`), { code: "fetch_error", hint: "load(url, { apiKey: KEY })" });
});

test("a file of another size or content is refused", async () => {
  files.set("/bad/manifest.json", encoded(manifest()));
  for (const body of [model.slice(1), model.map((byte, i) => (i === 3 ? byte ^ 1 : byte))]) {
    files.set("/bad/onnx/model_int8.onnx", body);
    await assert.rejects(fetchBundle(`${root}/bad`), { code: "integrity_error" });
  }
});

test("what is not there, or not reachable, says what to type", async () => {
  await assert.rejects(fetchBundle(`${root}/none`), (/** @type {any} */ error) =>
    error.code === "fetch_error" && error.details.status === 404 && /edge-infer convert/.test(error.hint));
  await assert.rejects(fetchBundle("http://127.0.0.1:1/none"), { code: "fetch_error", hint: /edge-infer serve/ });
});

test("a page that is not secure hashes by itself", async () => {
  const original = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: {}, configurable: true });
  try {
    assert.deepEqual((await fetchBundle(`${root}/good`)).model, model);
    await assert.rejects(fetchBundle(`${root}/bad`), { code: "integrity_error" });
  } finally {
    if (original) Object.defineProperty(globalThis, "crypto", original);
  }
});
