/** QR codes: the modules are those that another library, ZXing's reader, has read back as these texts. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { qrCode } from "../studio/qr.js";

/** By text its side, and the digest of its modules. @type {[string, number, string][]} */
const READ = [
  ["HELLO", 21, "d51e6b3d78d8b096"],
  ["http://127.0.0.1:8080/#/models/keywords?engine=compiled&variant=compiled%2Fint8&device=wasm&threads=auto", 37, "9c23bdd04b5cf899"],
  ["x".repeat(300), 61, "d7800c87eac801b0"],
  ["ä".repeat(400), 97, "da284fdffa782eab"],
];

test("texts of several versions give the modules that a reader read", () => {
  for (const [text, side, digest] of READ) {
    const rows = qrCode(text);
    assert.equal(rows?.length, side);
    const modules = (rows ?? []).map((row) => row.map(Number).join("")).join("\n");
    assert.equal(createHash("sha256").update(modules).digest("hex").slice(0, 16), digest, text.slice(0, 20));
  }
});

test("the longest text fits, and a longer one has no code", () => {
  assert.equal(qrCode("y".repeat(858))?.length, 97);
  assert.equal(qrCode("y".repeat(859)), null);
});
