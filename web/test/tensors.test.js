/** The check of inputs, and the roundings that no browser offers everywhere. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { checkInput, nbytesOf, symbolSizes, toBfloat16, toFloat16 } from "../src/tensors.js";

/** @typedef {import("../src/tensors.js").DType} DType */

/** @param {DType} dtype @param {(number | string)[]} shape */
const spec = (dtype, shape) => ({ name: "x", dtype, shape });

test("float16 is rounded to the nearest, ties to even, with subnormals and infinity", () => {
  /** @type {[number, number][]} */
  const cases = [
    [0, 0x0000],
    [-0, 0x8000],
    [1, 0x3c00],
    [-2, 0xc000],
    [65504, 0x7bff],
    [65519, 0x7bff],
    [65520, 0x7c00],
    [-1e9, 0xfc00],
    [Infinity, 0x7c00],
    [NaN, 0x7e00],
    [2 ** -14, 0x0400],
    [2 ** -24, 0x0001],
    [2 ** -25, 0x0000],
    [3 * 2 ** -25, 0x0002],
    [1 + 2 ** -11, 0x3c00],
    [1 + 3 * 2 ** -11, 0x3c02],
    [0.1, 0x2e66],
    [2 ** -14 - 2 ** -26, 0x0400],
  ];
  for (const [value, bits] of cases) assert.equal(toFloat16(value), bits, String(value));
});

test("every float16 survives the way there and back", () => {
  for (let bits = 0; bits < 0x7c00; bits++) {
    const exponent = bits >> 10;
    const value = exponent === 0 ? (bits & 1023) * 2 ** -24 : (1024 + (bits & 1023)) * 2 ** (exponent - 25);
    assert.equal(toFloat16(value), bits);
    assert.equal(toFloat16(-value), bits | 0x8000);
  }
});

test("bfloat16 is rounded to the nearest, ties to even", () => {
  /** @type {[number, number][]} */
  const cases = [
    [1, 0x3f80],
    [1 + 2 ** -8, 0x3f80],
    [1 + 3 * 2 ** -8, 0x3f82],
    [-3.140625, 0xc049],
    [Infinity, 0x7f80],
    [NaN, 0x7fc0],
  ];
  for (const [value, bits] of cases) assert.equal(toBfloat16(value), bits, String(value));
});

test("two 4-bit values share a byte, the first in its low half", () => {
  assert.deepEqual(checkInput(spec("int4", [3]), [-8, 7, -1]).bytes, Uint8Array.of(0x78, 0x0f));
  assert.equal(nbytesOf("uint4", [3]), 2);
});

test("a typed array is taken without a copy", () => {
  const data = Float32Array.of(1, 2);

  assert.equal(checkInput(spec("float32", ["n"]), data).bytes?.buffer, data.buffer);
});

test("the shape of a flat array follows from its length where one dimension is free", () => {
  assert.deepEqual(checkInput(spec("float32", ["n", 2]), new Float32Array(6)).shape, [3, 2]);
  assert.throws(() => checkInput(spec("float32", ["n", "m"]), new Float32Array(6)), { hint: "pass {data, shape}" });
  assert.throws(() => checkInput(spec("float32", ["n", 4]), new Float32Array(6)), { code: "input_error" });
});

test("a value that its dtype cannot hold is refused", () => {
  /** @type {[DType, unknown][]} */
  const cases = [
    ["int8", 128],
    ["uint8", -1],
    ["int32", 1.5],
    ["uint64", -1n],
    ["int64", 2n ** 63n],
    ["bool", 2],
    ["float32", "1"],
    ["float32", null],
    ["string", 1],
    ["string", "a\0b"],
  ];
  for (const [dtype, value] of cases) {
    assert.throws(() => checkInput(spec(dtype, []), value), { code: "input_error" }, `${dtype} ${value}`);
  }
});

test("symbols take the sizes of the inputs, and none where two disagree", () => {
  const specs = [spec("float32", ["n", "m"]), { ...spec("float32", ["n"]), name: "z" }];

  assert.deepEqual([...symbolSizes(specs, { x: [2, 3], z: [2] })], [["n", 2], ["m", 3]]);
  assert.deepEqual([...symbolSizes(specs, { x: [2, 3], z: [5] })], [["n", null], ["m", 3]]);
});
