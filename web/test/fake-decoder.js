/** A decoder without weights: its logits are a hash of what its cache holds, as in `tests/support/generation/fake_decoder.py`. */

import assert from "node:assert/strict";

import { RandomNumbers } from "../src/generation/random-numbers.js";

export class FakeDecoder {
  /** @type {number[]} */
  #cache = [];
  /** @type {Float32Array[]} */
  #logits = [];
  /** How many rows each run had. @type {number[]} */
  runs = [];
  isClosed = false;
  threads = 1;

  /** @param {number} size Tokens of the model. @param {number} context */
  constructor(size, context) {
    this.config = { vocab_size: size };
    this.context = context;
  }

  /** @param {number[]} tokens @param {number[]} slots @param {number[]} positions @param {number[]} wanted */
  run(tokens, slots, positions, wanted) {
    assert.ok(!this.isClosed);
    assert.ok(tokens.length === slots.length && tokens.length === positions.length);
    this.runs.push(tokens.length);
    this.#logits = [];
    for (const [row, token] of tokens.entries()) {
      assert.ok(token >= 0 && token < this.config.vocab_size && positions[row] < this.context, `row ${row} is out of range`);
      assert.ok(slots[row] === 0 && positions[row] <= this.#cache.length, "a row sees positions that were never written");
      this.#cache[positions[row]] = token;
      if (wanted.includes(row)) this.#logits.push(this.#row(this.#cache.slice(0, positions[row] + 1)));
    }
  }

  /** @param {number[]} seen */
  #row(seen) {
    let key = 0xcbf29ce484222325n;
    for (const token of seen) key = BigInt.asUintN(64, (key ^ BigInt(token + 1)) * 0x100000001b3n);
    const random = new RandomNumbers(key);
    return Float32Array.from({ length: this.config.vocab_size }, () => (2 * random.uniform() - 1) * 8);
  }

  /** @param {number} index */
  logits(index) {
    return this.#logits[index];
  }

  /** @param {number} index @param {number} count @returns {[number, number][]} */
  top(index, count) {
    const logits = this.#logits[index];
    const order = Array.from(logits.keys()).sort((one, other) => logits[other] - logits[one] || one - other);
    return order.slice(0, count).map((token) => [token, logits[token]]);
  }

  close() {
    this.isClosed = true;
  }
}
