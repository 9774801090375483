import assert from "node:assert/strict";
import { test } from "node:test";

import { pipelineOf } from "../src/tasks/pipeline.js";
import { readDefinition } from "../src/tasks/definition.js";

/** @typedef {import("../src/tasks/pipeline.js").Runnable} Runnable */

const DEFINITION = { version: 1, inputs: { x: [{ step: "image.decode" }, { step: "image.to_tensor", layout: "NHWC" }] }, outputs: [{ step: "post.top_k" }] };
const IMAGE = { data: Uint8Array.of(1, 2, 3), width: 1, height: 1, channels: 3 };

/**
 * @param {object} [facts] Of the session.
 * @param {object} [document] Fields of the manifest.
 * @returns {Runnable} A session whose model returns its input.
 */
function session(facts = {}, document = {}) {
  const manifest = { name: "made", task: "image-classification", pipeline: DEFINITION, variants: [{ id: "onnx/fp32" }], ...document };
  return {
    inputs: [{ name: "x", dtype: "uint8", shape: [1, 1, 1, 3] }],
    outputs: [{ name: "y", dtype: "uint8", shape: [1, 3] }],
    labels: ["red", "green", "blue"],
    read: async () => new TextEncoder().encode(JSON.stringify(manifest)),
    run: async ({ x }) => ({ y: { .../** @type {any} */ (x), shape: [1, 3] } }),
    report: () => ({ variant: "onnx/fp32" }),
    dispose: async () => {},
    ...facts,
  };
}

/** @param {string} code @param {RegExp} said */
const failure = (code, said) => (/** @type {any} */ error) => error.code === code && said.test(error.message);

test("a pipeline answers one input, and a list with a list", async () => {
  const classify = await pipelineOf(session());

  assert.equal(classify.task, "image-classification");
  assert.equal(/** @type {any} */ (classify)[Symbol.asyncDispose], classify.dispose);
  assert.deepEqual(await classify(IMAGE, { top_k: 1 }), [{ label: "blue", score: 3 }]);
  assert.deepEqual(await classify([IMAGE, IMAGE], { top_k: 1, threshold: undefined }), [[{ label: "blue", score: 3 }], [{ label: "blue", score: 3 }]]);
  assert.deepEqual(await classify([]), []);
});

test("an argument that is unknown or does not fit is refused", async () => {
  const classify = await pipelineOf(session());

  await assert.rejects(classify(IMAGE, { top: 1 }), failure("input_error", /takes no argument `top`/));
  await assert.rejects(classify(IMAGE, { top_k: "1" }), failure("input_error", /`top_k` is "1", expected a whole number from 1 to/));
  await assert.rejects(classify({ data: Uint8Array.of(1), width: 2, height: 1 }), failure("input_error", /has 1 bytes/));
  await assert.rejects(classify("cat.jpg"), failure("input_error", /cannot be decoded here/));
});

test("a definition that is wrong is refused, with the step and the parameter named", () => {
  const step = { step: "image.decode" };
  /** @type {[unknown, unknown, string, RegExp][]} */
  const cases = [
    ["image-clasification", DEFINITION, "input_error", /no task `image-clasification`/],
    [7, DEFINITION, "manifest_error", /`task` is 7, and `pipeline` /],
    ["fill-mask", [], "manifest_error", /`pipeline` \[\], expected a text and an object/],
    ["fill-mask", { ...DEFINITION, version: 2 }, "manifest_error", /version 2, this edge-infer reads 1/],
    ["fill-mask", { ...DEFINITION, inputs: [] }, "manifest_error", /`inputs` is \[\], expected an object/],
    ["fill-mask", { ...DEFINITION, inputs: {} }, "manifest_error", /`inputs` is \{\}, expected an object/],
    ["fill-mask", { ...DEFINITION, source: 1 }, "manifest_error", /`source` is 1, expected a text/],
    ["fill-mask", { ...DEFINITION, outputs: [] }, "manifest_error", /pipeline\.outputs is a list of 0 steps, expected a list of 1 to 64 steps/],
    ["fill-mask", { ...DEFINITION, inputs: { x: Array(65).fill(step) } }, "manifest_error", /inputs\['x'\] is a list of 65 steps/],
    ["fill-mask", { ...DEFINITION, inputs: { x: [{ step: "image.decoed" }] } }, "manifest_error", /\[0\]: there is no step `image\.decoed`/],
    ["fill-mask", { ...DEFINITION, inputs: { x: [{ step: "toString" }] } }, "manifest_error", /there is no step `toString`/],
    ["fill-mask", { ...DEFINITION, inputs: { x: [step] } }, "manifest_error", /ends with `image\.decode`, which gives image, expected tensor or frames/],
    ["fill-mask", { ...DEFINITION, outputs: [{ step: "post.nms" }] }, "manifest_error", /`post\.nms` takes detections, and the chain gives outputs/],
    ["fill-mask", { ...DEFINITION, inputs: { x: [{ ...step, mode: "BGR" }] } }, "manifest_error", /`mode` is "BGR", expected `RGB`, `L`/],
    ["fill-mask", { ...DEFINITION, inputs: { x: [{ ...step, toString: 1 }] } }, "manifest_error", /has no parameter `toString`/],
  ];
  for (const [task, document, code, said] of cases) assert.throws(() => readDefinition(task, document), failure(code, said));
});

test("a definition that does not fit the model is refused", async () => {
  const other = (/** @type {object} */ inputs) => session({}, { pipeline: { ...DEFINITION, inputs } });

  await assert.rejects(pipelineOf(other({ z: DEFINITION.inputs.x })), failure("manifest_error", /no input `z`/));
  const two = session({ inputs: [{ name: "x", dtype: "uint8", shape: [1, 1, 1, 3] }, { name: "w", dtype: "uint8", shape: [1] }] });
  await assert.rejects(pipelineOf(two), failure("manifest_error", /nothing makes the model's input `w`/));
  await assert.rejects(pipelineOf(session({}, { task: undefined })), failure("unsupported", /`made` does not say/));
  await assert.rejects(pipelineOf(session(), "fill-mask"), failure("input_error", /is for image-classification, not for fill-mask/));
});

test("a streamed model gets what it gave as its state", async () => {
  const document = {
    task: "voice-activity-detection",
    variants: [{ id: "onnx/fp32", state: [{ kind: "pair", out: "counted", in: "count" }] }],
    pipeline: {
      version: 1,
      inputs: { x: [{ step: "audio.decode" }, { step: "audio.frame", samples: 100, context: 10 }] },
      outputs: [{ step: "post.tensor", tensor: "speech" }],
    },
  };
  /** @type {any[]} */
  const seen = [];
  const facts = {
    inputs: [{ name: "x", dtype: "float32", shape: ["batch", 110] }, { name: "count", dtype: "int64", shape: [2, "batch"] }],
    outputs: [{ name: "speech", dtype: "float32", shape: ["batch", 1] }, { name: "counted", dtype: "int64", shape: [2, "batch"] }],
    labels: [],
    run: async (/** @type {any} */ { x, count }) => {
      seen.push([x.shape, count.shape, ...count.data]);
      const counted = { ...count, data: count.data.map((/** @type {bigint} */ one) => one + 1n) };
      return { speech: { data: Float32Array.of(x.data[10]), dtype: "float32", shape: [1, 1] }, counted };
    },
  };
  const hear = await pipelineOf(session(facts, document));

  const found = await hear(Float32Array.from({ length: 250 }, (_, i) => i));
  assert.deepEqual([found.shape, [...found.data]], [[3, 1, 1], [0, 100, 200]]);
  assert.deepEqual(seen, [0n, 1n, 2n].map((count) => [[1, 110], [2, 1], count, count]));
  const hidden = { ...document, variants: [{ id: "onnx/fp32", state: [{ kind: "hidden" }] }] };
  const free = { ...facts, inputs: facts.inputs.slice(0, 1) };
  await assert.rejects((await pipelineOf(session(free, hidden)))([0.1, 0.2]), failure("unsupported", /keeps its state in itself/));
});

test("texts of about one length run together, and come back in their order", async () => {
  const vocab = Object.fromEntries(["[UNK]", "a", "b", "c"].map((word, i) => [word, i]));
  const tokenizer = { model: { type: "WordLevel", vocab, unk_token: "[UNK]" }, pre_tokenizer: { type: "Whitespace" }, added_tokens: [] };
  const document = {
    task: "feature-extraction",
    pipeline: { version: 1, inputs: { "*": [{ step: "text.tokenize", pad_id: 9 }] }, outputs: [{ step: "post.tensor" }] },
  };
  /** @type {any[]} */
  const seen = [];
  const base = session({}, document);
  const embed = await pipelineOf({
    ...base,
    inputs: [{ name: "input_ids", dtype: "int64", shape: ["batch", "tokens"] }],
    outputs: [{ name: "y", dtype: "int64", shape: ["batch", "tokens"] }],
    read: async (path) => (path === "tokenizer.json" ? new TextEncoder().encode(JSON.stringify(tokenizer)) : base.read(path)),
    run: async ({ input_ids: ids }) => {
      seen.push(/** @type {any} */ (ids).shape);
      return { y: /** @type {any} */ (ids) };
    },
  });

  const long = "c ".repeat(300);
  const found = await embed(["a b c", long, "b"]);
  assert.deepEqual(seen, [[2, 3], [1, 300]]);
  assert.deepEqual([...found[0].data, ...found[2].data], [1n, 2n, 3n, 2n, 9n, 9n]);
  assert.equal(found[1].data.length, 300);
});
