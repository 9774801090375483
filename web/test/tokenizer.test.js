import assert from "node:assert/strict";
import { test } from "node:test";

import { Tokenizer } from "edge-infer/tokenizer";

test("the package exports the tokenizer by its own name", () => {
  const model = { type: "WordLevel", vocab: { "[UNK]": 0, Hello: 1, world: 2 }, unk_token: "[UNK]" };
  const file = { model, pre_tokenizer: { type: "Whitespace" }, added_tokens: [] };
  const tokenizer = new Tokenizer(new TextEncoder().encode(JSON.stringify(file)));

  assert.deepEqual([...tokenizer.encode("Hello world you").ids], [1, 2, 0]);
  assert.equal(tokenizer.decode([1, 2]), "Hello world");
});
