/** A QR code of a short text: ISO/IEC 18004 in byte mode with correction level L, versions 1 to 20, always with mask 0. */

/** By version the bytes of correction of a block, and the number of blocks: table 9 of the standard, level L. */
const CORRECTION = [0, 7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28];
const BLOCKS = [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8];
const LEVEL_L = 1;

/** @param {number} version @returns {number} The modules that carry data and correction. */
function modulesOf(version) {
  const marks = Math.floor(version / 7) + 2;
  return (16 * version + 128) * version + 64 - (version > 1 ? (25 * marks - 10) * marks - 55 : 0) - (version > 6 ? 36 : 0);
}

/** @param {number} version @returns {number} */
function dataBytesOf(version) {
  return (modulesOf(version) >> 3) - CORRECTION[version] * BLOCKS[version];
}

/** Multiply in the field of 256 elements, modulo x^8 + x^4 + x^3 + x^2 + 1. @param {number} a @param {number} b */
function times(a, b) {
  let product = 0;
  for (let i = 7; i >= 0; i--) product = (product << 1) ^ ((product >> 7) * 0x11d) ^ (((b >> i) & 1) * a);
  return product;
}

/** @param {number[]} data @param {number} count @returns {number[]} The remainder that corrects it (Reed and Solomon). */
function correctionOf(data, count) {
  /** @type {number[]} */
  const divisor = [...new Array(count - 1).fill(0), 1];
  for (let i = 0, root = 1; i < count; i++, root = times(root, 2)) {
    for (let k = 0; k < count; k++) divisor[k] = times(divisor[k], root) ^ (divisor[k + 1] ?? 0);
  }
  const rest = new Array(count).fill(0);
  for (const byte of data) {
    const factor = byte ^ rest.shift();
    rest.push(0);
    divisor.forEach((one, k) => (rest[k] ^= times(one, factor)));
  }
  return rest;
}

/** @param {Uint8Array} text @param {number} version @returns {number[]} Data and correction, block by block interleaved. */
function bytesOf(text, version) {
  /** @type {number[]} */
  const bits = [];
  const put = (/** @type {number} */ value, /** @type {number} */ length) => {
    for (let i = length - 1; i >= 0; i--) bits.push((value >> i) & 1);
  };
  const room = dataBytesOf(version);
  put(4, 4);
  put(text.length, version < 10 ? 8 : 16);
  text.forEach((byte) => put(byte, 8));
  put(0, Math.min(4, 8 * room - bits.length));
  put(0, -bits.length & 7);
  for (let pad = 0xec; bits.length < 8 * room; pad ^= 0xec ^ 0x11) put(pad, 8);
  const data = Array.from({ length: room }, (_, i) => bits.slice(8 * i, 8 * i + 8).reduce((all, bit) => 2 * all + bit, 0));
  const [count, total, more] = [BLOCKS[version], modulesOf(version) >> 3, CORRECTION[version]];
  const short = count - (total % count);
  /** @type {number[][]} */
  const blocks = [];
  for (let i = 0, at = 0; i < count; i++) {
    const length = Math.floor(total / count) - more + (i < short ? 0 : 1);
    blocks.push(data.slice(at, (at += length)));
  }
  const corrections = blocks.map((block) => correctionOf(block, more));
  const woven = (/** @type {number[][]} */ rows) => Array.from({ length: Math.max(...rows.map((row) => row.length)) }, (_, i) => rows.flatMap((row) => row[i] ?? [])).flat();
  return [...woven(blocks), ...woven(corrections)];
}

/**
 * @param {string} text
 * @returns {boolean[][] | null} Rows of modules, true where they are dark; null where the text is too long.
 */
export function qrCode(text) {
  const encoded = new TextEncoder().encode(text);
  let version = 1;
  while (version < BLOCKS.length && dataBytesOf(version) < encoded.length + (version < 10 ? 2 : 3)) version++;
  if (version === BLOCKS.length) return null;
  const size = 4 * version + 17;
  const dark = Array.from({ length: size }, () => /** @type {boolean[]} */ (new Array(size).fill(false)));
  const fixed = Array.from({ length: size }, () => /** @type {boolean[]} */ (new Array(size).fill(false)));
  const set = (/** @type {number} */ x, /** @type {number} */ y, /** @type {unknown} */ value) => {
    if (x < 0 || y < 0 || x >= size || y >= size) return;
    [dark[y][x], fixed[y][x]] = [Boolean(value), true];
  };
  const square = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ reach, /** @type {number[]} */ light) => {
    for (let i = -reach; i <= reach; i++) for (let k = -reach; k <= reach; k++) set(x + i, y + k, !light.includes(Math.max(Math.abs(i), Math.abs(k))));
  };
  for (let i = 0; i < size; i++) (set(6, i, i % 2 === 0), set(i, 6, i % 2 === 0));
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, [2, 4]);
  const marks = version > 1 ? Math.floor(version / 7) + 2 : 0;
  const step = Math.floor((version * 8 + marks * 3 + 5) / (marks * 4 - 4)) * 2;
  const places = marks ? [6, ...Array.from({ length: marks - 1 }, (_, i) => size - 7 - step * (marks - 2 - i))] : [];
  const isCorner = (/** @type {number} */ i, /** @type {number} */ k) => (i === 0 && (k === 0 || k === marks - 1)) || (k === 0 && i === marks - 1);
  places.forEach((x, i) => places.forEach((y, k) => isCorner(i, k) || square(x, y, 2, [1])));
  const format = withRest(LEVEL_L << 3, 10, 0x537) ^ 0x5412;
  const bit = (/** @type {number} */ i) => (format >> i) & 1;
  for (let i = 0; i < 15; i++) {
    if (i < 8) (set(8, i < 6 ? i : i + 1, bit(i)), set(size - 1 - i, 8, bit(i)));
    else (set(i === 8 ? 7 : 14 - i, 8, bit(i)), set(8, size - 15 + i, bit(i)));
  }
  set(8, size - 8, true);
  if (version > 6) {
    const told = withRest(version, 12, 0x1f25);
    for (let i = 0; i < 18; i++) {
      const [a, b] = [size - 11 + (i % 3), Math.floor(i / 3)];
      set(a, b, (told >> i) & 1);
      set(b, a, (told >> i) & 1);
    }
  }
  const bytes = bytesOf(encoded, version);
  let at = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let i = 0; i < size; i++) {
      for (const x of [right, right - 1]) {
        const y = (right + 1) & 2 ? i : size - 1 - i;
        if (fixed[y][x]) continue;
        const value = ((bytes[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
        dark[y][x] = (value ^ ((x + y + 1) & 1)) === 1;
        at++;
      }
    }
  }
  return dark;
}

/** @param {number} value @param {number} length @param {number} divisor @returns {number} The value, and behind it the rest of its division (BCH). */
function withRest(value, length, divisor) {
  let rest = value;
  for (let i = 0; i < length; i++) rest = (rest << 1) ^ ((rest >> (length - 1)) * divisor);
  return (value << length) | rest;
}
