/** Texts for models with an encoder and a decoder: what cannot be asked is refused before the engine sees it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { SequenceModel } from "../src/generation/encoder-decoder.js";

/** @param {number[]} ids What the tokenizer makes of any text. @returns {SequenceModel} */
function modelOf(ids) {
  const definition = { architecture: "t5", vocabSize: 320, context: 0, tokenizer: "tokenizer.json", encoders: {}, start: 0, eos: [2], prefix: "say: ", speech: {} };
  const tokenizer = /** @type {any} */ ({ encode: (/** @type {string} */ text) => ({ ids: text.startsWith("say: ") ? ids : [] }) });
  return new SequenceModel(definition, "translation", "onnx/fp32", tokenizer, [], new Map());
}

test("the tokens of a text are those of the model", () => {
  assert.deepEqual(modelOf([1, 319]).tokenize("Hello"), [1, 319]);
  assert.throws(() => modelOf([1, 5000]).tokenize("Hello"), { code: "input_error", message: /has the token 5000, the model has 320 tokens/ });
  assert.throws(() => modelOf([]).tokenize("Hello"), { code: "input_error", message: /no tokens/ });
});
