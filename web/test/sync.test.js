/** The reference vectors that the Python decoder is tested with too, and packs that lie. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ZSTDDecoder } from "zstddec";
import { sha256 } from "../src/fetch/sha256.js";
import { canonical } from "../src/sync/canonical.js";
import { unpack } from "../src/sync/pack.js";
import { CHUNK, KeyRing, clearSize, opened, seal, sealedSize } from "../src/sync/sealed.js";
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

test("sealed files are those of the publisher, byte for byte, and open", async () => {
  for (const { key, name, size, sha256: digest } of vectors.sealed) {
    const ring = await KeyRing.of(`# a comment\n${key}\n`);
    assert.equal(ring.keys[0].name, name);
    const clear = Uint8Array.from({ length: size }, (_, i) => i % 251);
    const made = await seal(clear, ring.keys[0]);
    assert.equal(await sha256(made), digest, `${size} bytes`);
    assert.equal(made.length, sealedSize(size));
    assert.equal(clearSize(made.length), size);
    assert.deepEqual(await opened(made, ring, "x"), clear);
  }
});

test("a sealed file that was changed, cut or is another's does not open", async () => {
  const ring = await KeyRing.of(vectors.sealed[4].key);
  const made = await seal(new Uint8Array(2 * CHUNK + 9), ring.keys[0]);
  const step = CHUNK + 28;
  const swapped = made.slice();
  swapped.set(made.subarray(16 + step, 16 + 2 * step), 16);
  swapped.set(made.subarray(16, 16 + step), 16 + step);
  const flipped = made.slice();
  flipped[16 + step + 400] ^= 1;
  const dropped = new Uint8Array([...made.subarray(0, 16), ...made.subarray(16 + step)]);
  for (const [what, data] of /** @type {[string, Uint8Array<ArrayBuffer>][]} */ (Object.entries({ swapped, flipped, dropped, cut: made.slice(0, -1), none: new Uint8Array(), clear: new Uint8Array(100) }))) {
    await assert.rejects(opened(data, ring, "x"), { code: "integrity_error" }, what);
  }
  const other = await KeyRing.of(vectors.sealed[0].key);
  await assert.rejects(opened(made, other, "x"), (/** @type {any} */ error) => error.code === "encrypted" && error.message.includes(`for the key ${vectors.sealed[4].name}`));
  for (const text of ["", "# only words", "ab".repeat(31), "zz".repeat(32)]) {
    await assert.rejects(KeyRing.of(text), (/** @type {any} */ error) => error.code === "encrypted" && !error.message.includes("abab"));
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
