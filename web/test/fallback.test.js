/** A server to fall back to: the rules are those of Python, and a server's answer is bounded in time and size. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { RemoteModel, tensorsOf } from "../src/engines/remote-model.js";
import { EdgeInferError } from "../src/errors.js";
import { FallbackModel, fallbackOf, mayBeServed } from "../src/page/fallback.js";
import { serve } from "./local-server.js";

/** @typedef {import("node:http").ServerResponse} ServerResponse */

/** @type {import("../src/tensors.js").TensorSpec[]} */
const inputs = [{ name: "x", dtype: "float32", shape: ["batch"] }];
/** @type {import("../src/tensors.js").TensorSpec[]} */
const outputs = [{ name: "y", dtype: "float32", shape: ["batch"] }];
const specs = { inputs, outputs };
const described = { name: "m", versions: ["3"], inputs: [{ name: "x", datatype: "FP32", shape: [-1] }], outputs: [{ name: "y", datatype: "FP32", shape: [-1] }] };
const report = /** @type {any} */ ({ device: "wasm", engine: "ort", fallbacks: [] });

/** @param {ServerResponse} response @param {object} document @param {Uint8Array} [tail] @param {Record<string, string>} [headers] */
function answer(response, document, tail = new Uint8Array(), headers = {}) {
  const head = Buffer.from(JSON.stringify(document));
  response.writeHead(200, { "Inference-Header-Content-Length": String(head.length), ...headers }).end(Buffer.concat([head, tail]));
}

/** @param {ServerResponse} response @param {number[]} values */
function good(response, values) {
  const parameters = { binary_data_size: 4 * values.length };
  answer(response, { outputs: [{ name: "y", datatype: "FP32", shape: [values.length], parameters }] }, new Uint8Array(Float32Array.from(values).buffer));
}

/** @param {(response: ServerResponse, body: Buffer) => void} infer @returns {Promise<string>} The model's address. */
async function model(infer) {
  const origin = await serve((request, response) => {
    if (request.method === "GET") return answer(response, described);
    /** @type {Buffer[]} */
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => infer(response, Buffer.concat(chunks)));
  });
  return `${origin}/v2/models/m`;
}

/** Runs whose time here is set by a clock of the test. @param {string} url @param {number} [budgetMs] */
function hybrid(url, budgetMs) {
  let time = 0;
  const fallback = new FallbackModel({ url, budgetMs }, () => time);
  const run = (/** @type {number} */ ms, /** @type {unknown} */ error = undefined) =>
    fallback.run(specs, { x: Float32Array.of(1, 2) }, {}, async () => {
      time += ms;
      if (error) throw error;
      return { y: { data: Float32Array.of(0), dtype: "float32", shape: [1] } };
    }).then(({ y }) => Number(y.data[0]));
  const call = (/** @type {Record<string, unknown>} */ given, /** @type {import("../src/page/fallback.js").RunOptions} */ options = {}) =>
    fallback.run(specs, given, options, async () => assert.fail("it runs at the server"));
  return { run, call, tick: (/** @type {number} */ ms) => void (time += ms), report: () => fallback.reportOf(report) };
}

test("a run that fails for want of memory goes to the server, one that fails otherwise does not", async () => {
  const { run, report: told } = hybrid(await model((response) => good(response, [7, 8])));

  assert.equal(await run(1, new EdgeInferError("The engine has no memory left for 9 bytes", "out_of_memory")), 7);
  assert.equal(await run(1, new EdgeInferError("RangeError: Array buffer allocation failed", "error")), 7);
  await assert.rejects(run(1, new EdgeInferError("wrong", "execution_error")), { code: "execution_error" });
  assert.equal(await run(1), 0);

  const { device, fallbacks } = told();
  assert.equal(device, "wasm");
  assert.match(fallbacks.join(), /^2 calls at http.*: too little memory here \(The engine has no memory left for 9 bytes\)$/);
});

test("three slow runs in a row go over, the first of all is not counted, and a faster server is kept", async () => {
  const { run, report: told } = hybrid(await model((response) => good(response, [7])), 10);

  const here = [];
  for (const ms of [99, 11, 11, 5, 11, 12, 13]) here.push(await run(ms));
  const there = [await run(0), await run(0), await run(0)];

  assert.deepEqual([here, there], [[0, 0, 0, 0, 0, 0, 0], [7, 7, 7]]);
  assert.equal(told().device, "remote");
  assert.match(told().fallbacks.join(), /^3 calls at http.*: 11 ms here, more than 10 ms$/);
});

test("a server that is slower still, or fails, is left for good", async () => {
  /** @type {ReturnType<typeof hybrid>} */
  let slow;
  const url = await model((response) => (slow.tick(50), good(response, [7])));
  slow = hybrid(url, 10);
  const failing = hybrid(await model((response) => response.writeHead(500).end()), 10);

  const found = [];
  for (let i = 0; i < 8; i++) found.push(await slow.run(20));
  for (let i = 0; i < 4; i++) await failing.run(20);

  assert.deepEqual(found, [0, 0, 0, 0, 7, 7, 0, 0], "four here, two there, and back");
  assert.deepEqual([slow.report().device, slow.report().fallbacks.at(-1)], ["wasm", "then here again: the server took 50 ms"]);
  assert.equal(await failing.run(20), 0, "it came back");
  assert.match(String(failing.report().fallbacks.at(-1)), /^then here again: the server failed \(.*status 500\)/);
});

test("a wrong call is no fault of the server's", async () => {
  const { run, report: told, call } = hybrid(await model((response) => good(response, [7])), 10);
  for (const ms of [99, 11, 11, 11]) await run(ms);

  await assert.rejects(call({ x: Float64Array.of(1) }), { code: "input_error" });
  await assert.rejects(call({ x: Float32Array.of(1) }, { outputs: ["z"] }), { code: "input_error" });

  assert.equal(await run(0), 7);
  assert.deepEqual([told().device, told().fallbacks.length], ["remote", 1]);
});

test("a run is given up while the server is asked what it has", { timeout: 20_000 }, async () => {
  const silent = await serve(() => {});
  const { run, call } = hybrid(`${silent}/v2/models/m`, 10);
  for (const ms of [99, 11, 11, 11]) await run(ms);
  const control = new AbortController();

  const given = call({ x: Float32Array.of(1) }, { signal: control.signal });
  setTimeout(() => control.abort(new Error("given up")), 50);

  await assert.rejects(given, /given up/);
});

test("another model on the server is refused", async () => {
  const url = await model((response) => good(response, [7]));
  const other = { inputs, outputs: [{ ...outputs[0], name: "z" }] };
  await assert.rejects(new RemoteModel(url).check(other), { code: "bundle_error", message: /another model: it has the outputs y float32, this one z float32/ });
});

test("what `load` is given is checked, and a key goes to the bundle's own server alone", () => {
  const [url, bundle] = ["https://a.test/v2/models/m", "https://a.test/models/m"];
  assert.deepEqual(fallbackOf(url, 5, bundle, "key"), { url, apiKey: "key", budgetMs: 5 });
  assert.equal(fallbackOf(url, undefined, "https://b.test/models/m", "key").apiKey, undefined);
  assert.throws(() => fallbackOf("https://a.test/models/m", undefined, bundle), { code: "input_error" });
  assert.throws(() => fallbackOf("https://[/v2/models/m", undefined, bundle), { code: "input_error" });
  assert.throws(() => fallbackOf(url, 0, bundle), { code: "input_error" });
  const codes = ["unsupported_model", "backend_unavailable", "out_of_memory", "integrity_error", "fetch_error", "input_error"];
  assert.deepEqual(codes.map((code) => mayBeServed(new EdgeInferError("", code))), [true, true, true, false, false, false]);
});

test("texts and chosen outputs cross as Python sends them", async () => {
  /** @type {any} */
  let asked;
  const url = await model((response, body) => {
    const end = body.indexOf("]}") + 2;
    asked = body.toString("latin1");
    assert.ok(end > 1);
    good(response, [1]);
  });
  const remote = new RemoteModel(url);
  const { y } = await remote.run(tensorsOf([{ name: "t", dtype: "string", shape: ["n"] }], { t: ["ab", ""] }), { outputs: ["y"] });

  assert.deepEqual([...(/** @type {Float32Array} */ (y.data))], [1]);
  assert.ok(asked.includes('"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":10}'));
  assert.ok(asked.endsWith("\x02\0\0\0ab\0\0\0\0"));
  assert.ok(asked.includes('"outputs":[{"name":"y","parameters":{"binary_data":true}}]'));
});

test("a server that is full is asked again when it says, one that never answers is given up, and so is one that sends too much", async () => {
  let refused = 0;
  /** @type {number[]} */
  const waits = [];
  const pause = async (/** @type {number} */ ms) => void waits.push(ms);
  const busy = await model((response) => (refused++ < 2 ? response.writeHead(503, { "Retry-After": "2" }).end() : good(response, [5])));
  const { y } = await new RemoteModel(busy, undefined, { pause }).run({});
  assert.deepEqual([y.data[0], waits], [5, [2000, 2000]]);

  const silent = new RemoteModel(await model(() => {}), undefined, { timeoutMs: 300 });
  await assert.rejects(silent.run({}), { code: "fetch_error", message: /has not answered within 0.3 s/ });

  const aborted = new AbortController();
  setTimeout(() => aborted.abort(new Error("given up")), 100);
  await assert.rejects(new RemoteModel(await model(() => {})).run({}, { signal: aborted.signal }), /given up/);

  const endless = new RemoteModel(await model((response) => {
    response.writeHead(200);
    const more = () => response.write(Buffer.alloc(2 ** 18)) || response.once("drain", more);
    const timer = setInterval(more, 1);
    response.on("close", () => clearInterval(timer));
  }));
  await endless.check({ inputs, outputs: [{ ...outputs[0], shape: [2] }] });
  await assert.rejects(endless.run({}), { code: "execution_error", message: /at most 1048584 are expected/ });
});

test("answers in a wrong form are refused", async () => {
  const entry = { name: "y", datatype: "FP32", shape: [1], parameters: { binary_data_size: 4 } };
  const wrong = [
    {}, { outputs: {} }, { outputs: [null] }, { outputs: [{ ...entry, datatype: "FP99" }] }, { outputs: [{ ...entry, shape: [-1] }] }, { outputs: [{ ...entry, shape: [2 ** 60] }] },
    { outputs: [{ ...entry, parameters: { binary_data_size: 2 ** 40 } }] }, { outputs: [{ ...entry, parameters: {} }] }, { outputs: [{ ...entry, name: "z" }] },
    { outputs: [{ ...entry, datatype: "BYTES" }] }, { outputs: [{ ...entry, shape: [2] }] },
  ];
  let document = /** @type {object} */ ({});
  /** @type {Record<string, string>} */
  let headers = {};
  const remote = new RemoteModel(await model((response) => answer(response, document, Uint8Array.of(255, 255, 255, 255), headers)));
  for (document of wrong) await assert.rejects(remote.run({}), { code: "execution_error" }, JSON.stringify(document));
  document = { outputs: [entry] };
  for (const length of ["9999", "-1", "x"]) {
    headers = { "Inference-Header-Content-Length": length };
    await assert.rejects(remote.run({}), { code: "execution_error" }, length);
  }
});
