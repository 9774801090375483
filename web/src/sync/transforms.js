/** Undo what `edge_infer.sync.transforms` did to the bytes of a tensor so that they compress better, exactly. */

import { EdgeInferError } from "../errors.js";

export const [COPY, RAW, PLANES, FLOATS, INTEGERS, RESCALED, GROUPED] = [0, 1, 2, 3, 4, 5, 6];
export const CODECS = [RAW, PLANES, FLOATS, INTEGERS, RESCALED, GROUPED];
export const DIFFERENCES = [FLOATS, INTEGERS, RESCALED, GROUPED];
const [MIN_RATIO, MAX_RATIO] = [2 ** 8, 2 ** 24];

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/**
 * @param {number} transform
 * @param {number} width The bytes of one element; of `RESCALED` the ratio of the scales, in units of 2 ** -16.
 * @param {Bytes} data
 * @param {Bytes} old Of a difference: as many bytes of the old version.
 * @returns {Bytes}
 * @throws {EdgeInferError} `delta_error`: the transform or width is unknown, or the lengths do not fit.
 */
export function decode(transform, width, data, old) {
  if (transform === RESCALED && width >= MIN_RATIO && width <= MAX_RATIO) return rescaled(width, data, old);
  if (transform === RESCALED || !CODECS.includes(transform) || ![1, 2, 4, 8].includes(width)) {
    throw wrong(`has the unknown transform ${transform} of width ${width}`);
  }
  if (transform === RAW) return data;
  if (data.length % width !== 0) throw wrong(`has ${data.length} bytes of elements of ${width}`);
  if (transform === PLANES) return joined(width, data);
  if (old.length !== data.length) throw wrong(`has a difference of ${data.length} bytes against ${old.length}`);
  const isFloat = transform !== INTEGERS;
  if (width === 1 && isFloat) throw wrong("has floats of one byte");
  if (transform === GROUPED) return grouped(width, data, old);
  return difference(width, data, old, isFloat);
}

/**
 * @param {number} width
 * @param {Bytes} data
 * @param {Bytes} old
 * @param {boolean} isFloat
 * @returns {Bytes}
 */
function difference(width, data, old, isFloat) {
  if (width === 1) return of8(data, old);
  if (width === 2) return of16(data, aligned(old, 2), isFloat);
  if (width === 4) return of32(data, aligned(old, 4), isFloat);
  return of64(joined(8, data), aligned(old, 8), isFloat);
}

/** @param {string} what */
function wrong(what) {
  return new EdgeInferError(`The pack ${what}`, "delta_error", { hint: "update edge-infer in this page" });
}

/**
 * @param {number} ratio
 * @param {Bytes} data
 * @param {Bytes} old
 * @returns {Bytes}
 */
function rescaled(ratio, data, old) {
  if (old.length !== data.length) throw wrong(`has a difference of ${data.length} bytes against ${old.length}`);
  // One entry for each of the 256 codes that an old byte can be.
  const scaled = Int32Array.from({ length: 256 }, (_, code) => Math.imul((code << 24) >> 24, ratio) + 0x8000);
  const rounded = Uint8Array.from(scaled, (code) => Math.min(Math.max(code >> 16, -128), 127));
  const turn = Uint8Array.from(scaled, (code) => (code & 0x8000 ? 255 : 0));
  const [predicted, turns] = [new Uint8Array(old.length), new Uint8Array(old.length)];
  for (let i = 0; i < old.length; i++) {
    predicted[i] = rounded[old[i]];
    turns[i] = turn[old[i]];
  }
  return of8(data, predicted, turns);
}

/**
 * @param {number} width
 * @param {Bytes} data
 * @param {Bytes} old
 * @returns {Bytes}
 */
function grouped(width, data, old) {
  const count = data.length / width;
  // A counting sort by the highest byte of the old elements without the sign.
  const next = new Uint32Array(129);
  for (let at = width - 1; at < old.length; at += width) next[(old[at] & 127) + 1]++;
  for (let key = 1; key < 128; key++) next[key] += next[key - 1];
  const place = new Uint32Array(count);
  for (let i = 0, at = width - 1; i < count; i++, at += width) place[i] = next[old[at] & 127]++;
  const Words = width === 2 ? Uint16Array : width === 4 ? Uint32Array : BigUint64Array;
  const { buffer, byteOffset } = aligned(old, width);
  const before = new Words(buffer, byteOffset, count);
  const sorted = new Words(count);
  for (let i = 0; i < count; i++) sorted[place[i]] = before[i];
  const made = new Words(difference(width, data, new Uint8Array(sorted.buffer), true).buffer);
  for (let i = 0; i < count; i++) sorted[i] = made[place[i]];
  return new Uint8Array(sorted.buffer);
}

/**
 * @param {Bytes} bytes
 * @param {number} width
 */
function aligned(bytes, width) {
  return bytes.byteOffset % width === 0 ? bytes : bytes.slice();
}

/**
 * @param {number} width
 * @param {Bytes} data
 * @returns {Bytes}
 */
function joined(width, data) {
  if (width === 1) return data;
  const count = data.length / width;
  const result = new Uint8Array(data.length);
  for (let plane = 0, from = 0; plane < width; plane++) {
    for (let at = plane; from < (plane + 1) * count; from++, at += width) result[at] = data[from];
  }
  return result;
}

// In each loop: join the planes, undo the fold of the sign, add the old element, and, for floats, map both from and to
// integers in the order of the floats. All browsers that run WebAssembly are little-endian.

/**
 * @param {Bytes} data
 * @param {Bytes} old
 * @param {Bytes} [turns] 255 where a difference has the other sign, else 0.
 */
function of8(data, old, turns = new Uint8Array(data.length)) {
  const result = new Uint8Array(data.length);
  // Four bytes at a time: their highest bits are added apart, so that no sum reaches into the next byte.
  const [low, high, one, whole] = [0x7f7f7f7f, 0x80808080, 0x01010101, data.length >> 2];
  const words = (/** @type {Bytes} */ { buffer, byteOffset }) => new Int32Array(buffer, byteOffset, whole);
  const [folded, before, turned, sums] = [words(aligned(data, 4)), words(aligned(old, 4)), words(turns), words(result)];
  for (let i = 0; i < whole; i++) {
    const turn = turned[i];
    const inverted = ((folded[i] >>> 1) & low) ^ Math.imul(folded[i] & one, 255) ^ turn;
    const difference = ((inverted & low) + (turn & one)) ^ (inverted & high);
    const base = before[i];
    sums[i] = ((difference & low) + (base & low)) ^ ((difference ^ base) & high);
  }
  for (let i = 4 * whole; i < result.length; i++) {
    const difference = (data[i] >> 1) ^ -(data[i] & 1);
    result[i] = old[i] + (turns[i] ? -difference : difference);
  }
  return result;
}

/** @param {Bytes} data @param {Bytes} old @param {boolean} isFloat */
function of16(data, old, isFloat) {
  const count = data.length / 2;
  const before = new Int16Array(old.buffer, old.byteOffset, count);
  const result = new Int16Array(count);
  for (let i = 0; i < count; i++) {
    const folded = data[i] | (data[count + i] << 8);
    const difference = (folded >> 1) ^ -(folded & 1);
    const base = before[i];
    if (isFloat) {
      const value = ((difference + (base ^ ((base >> 15) | 0x8000))) << 16) >> 16;
      result[i] = value ^ (~(value >> 15) | 0x8000);
    } else result[i] = difference + base;
  }
  return new Uint8Array(result.buffer);
}

/** @param {Bytes} data @param {Bytes} old @param {boolean} isFloat */
function of32(data, old, isFloat) {
  const count = data.length / 4;
  const before = new Int32Array(old.buffer, old.byteOffset, count);
  const result = new Int32Array(count);
  const top = 0x80000000 | 0;
  for (let i = 0; i < count; i++) {
    const folded = data[i] | (data[count + i] << 8) | (data[2 * count + i] << 16) | (data[3 * count + i] << 24);
    const difference = (folded >>> 1) ^ -(folded & 1);
    const base = before[i];
    if (isFloat) {
      const value = (difference + (base ^ ((base >> 31) | top))) | 0;
      result[i] = value ^ (~(value >> 31) | top);
    } else result[i] = difference + base;
  }
  return new Uint8Array(result.buffer);
}

/** @param {Bytes} data @param {Bytes} old @param {boolean} isFloat */
function of64(data, old, isFloat) {
  const count = data.length / 8;
  const folded = new BigUint64Array(data.buffer, data.byteOffset, count);
  const before = new BigInt64Array(old.buffer, old.byteOffset, count);
  const result = new BigInt64Array(count);
  const top = -(2n ** 63n);
  for (let i = 0; i < count; i++) {
    const difference = BigInt.asIntN(64, folded[i] >> 1n) ^ -BigInt.asIntN(64, folded[i] & 1n);
    const base = before[i];
    if (isFloat) {
      const value = BigInt.asIntN(64, difference + (base ^ ((base >> 63n) | top)));
      result[i] = value ^ (~(value >> 63n) | top);
    } else result[i] = BigInt.asIntN(64, difference + base);
  }
  return new Uint8Array(result.buffer);
}
