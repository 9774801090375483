/** The reference vectors that the Python decoder is tested with too, and packs that lie. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ZSTDDecoder } from "zstddec";
import { canonical } from "../src/sync/canonical.js";
import { unpack } from "../src/sync/pack.js";
import { offered } from "../src/sync/stage.js";
import { decode } from "../src/sync/transforms.js";
import { unzstd } from "../src/sync/zstd.js";

const vectors = JSON.parse(readFileSync(new URL("../../tests/sync/vectors.json", import.meta.url), "utf8"));
const decoder = new ZSTDDecoder();
await decoder.init();
const bytes = (/** @type {string} */ text) => Uint8Array.from(Buffer.from(text, "base64"));

test("transforms give what the vectors say, wherever their bytes begin", () => {
  for (const { transform, width, data, old, gives } of vectors.transforms) {
    for (const shift of [0, 1]) {
      const moved = new Uint8Array([...new Array(shift).fill(0), ...bytes(old)]).subarray(shift);
      assert.deepEqual(decode(transform, width, bytes(data), moved), bytes(gives), `${transform} of width ${width}`);
    }
  }
  assert.equal(vectors.transforms.length, 19);
});

test("packs give what the vectors say", async () => {
  for (const { name, pack, bases, files } of vectors.packs) {
    const old = new Map(bases.map((/** @type {any} */ one) => [one.sha256, bytes(one.bytes)]));
    const made = await unpack(bytes(pack), files, async (digest) => old.get(digest), decoder);
    for (const file of files) assert.deepEqual(made.get(file.path), bytes(file.bytes), `${name} ${file.path}`);
  }
});

test("canonical JSON is that of the publisher", () => {
  for (const { value, gives } of vectors.canonical) assert.equal(canonical(value), gives);
  assert.throws(() => canonical({ a: 1.5 }), /is not an integer/);
});

test("a step of a roll-out gives what the vectors say", async () => {
  for (const { custom, gives } of vectors.stages) {
    const target = { hashes: { sha256: "ab".repeat(32) }, length: 5, custom };
    const given = await offered(target, "m", "device", 0).then(({ isFallback }) => (isFallback ? "fallback" : "whole"), ({ code }) => code);
    assert.equal(given, gives, JSON.stringify(custom));
  }
});

test("every flipped byte of a pack is noticed", async () => {
  const { pack, bases, files } = vectors.packs[1];
  const old = new Map(bases.map((/** @type {any} */ one) => [one.sha256, bytes(one.bytes)]));
  const whole = bytes(pack);
  for (let at = 0; at < whole.length; at += 41) {
    const damaged = whole.slice();
    damaged[at] ^= 0x55;
    const made = await unpack(damaged, files, async (digest) => old.get(digest) ?? new Uint8Array(), decoder).catch((error) => error);
    if (made instanceof Map) for (const file of files) assert.deepEqual(made.get(file.path), bytes(file.bytes));
    else assert.equal(made.code, "delta_error", `byte ${at}: ${made}`);
  }
});

test("a frame that is cut, no frame, or larger than it may be is refused", () => {
  const { pack } = vectors.packs[0];
  const whole = bytes(pack);
  const header = whole.subarray(12, 12 + new DataView(whole.buffer).getUint32(8, true));
  assert.throws(() => unzstd(decoder, header, 10), /expected at most 10/);
  assert.throws(() => unzstd(decoder, header.subarray(0, 20), 2 ** 20), /cut short/);
  assert.throws(() => unzstd(decoder, header.subarray(0, 5), 2 ** 20), /not zstd/);
  assert.throws(() => unzstd(decoder, new Uint8Array(20), 2 ** 20), /not zstd/);
});
