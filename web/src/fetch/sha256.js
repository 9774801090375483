/** Compute SHA-256 by the browser where the page is in a secure context, else in JavaScript (FIPS 180-4). */

/**
 * @param {Uint8Array} bytes Also of memory that threads share, which browsers take no digest of.
 * @returns {Promise<string>} In hexadecimal digits.
 */
export async function sha256(bytes) {
  const digest = globalThis.crypto?.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", unshared(bytes))) : sha256Plain(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {Uint8Array} bytes
 * @returns {Uint8Array<ArrayBuffer>} The same, or a copy of it where threads share it.
 */
export function unshared(bytes) {
  return bytes.buffer instanceof ArrayBuffer ? /** @type {Uint8Array<ArrayBuffer>} */ (bytes) : new Uint8Array(bytes);
}

/** @param {number} count */
function primes(count) {
  const found = /** @type {number[]} */ ([]);
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime !== 0)) found.push(n);
  return found;
}

// The first 32 bits of the fractional parts of roots of primes: section 4.2.2 and 5.3.3 of the standard.
const fraction = (/** @type {number} */ root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
const ROUNDS = Uint32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)));
const START = Uint32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));

/**
 * @param {Uint8Array} bytes
 * @returns {Uint8Array} The 32 bytes of the digest.
 */
export function sha256Plain(bytes) {
  const tail = new Uint8Array(bytes.length % 64 < 56 ? 64 : 128);
  const whole = bytes.length - (bytes.length % 64);
  tail.set(bytes.subarray(whole));
  tail[bytes.length - whole] = 0x80;
  new DataView(tail.buffer).setBigUint64(tail.length - 8, BigInt(bytes.length) * 8n);
  const state = START.slice();
  const words = new Uint32Array(64);
  for (const block of [bytes.subarray(0, whole), tail]) {
    const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
    for (let at = 0; at < block.length; at += 64) mix(state, words, view, at);
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/**
 * @param {Uint32Array} state
 * @param {Uint32Array} w
 * @param {DataView} view
 * @param {number} at
 */
function mix(state, w, view, at) {
  for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const [x, y] = [w[i - 15], w[i - 2]];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] += word));
}
