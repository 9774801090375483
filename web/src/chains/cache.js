/** Results of steps that are kept in the page's memory by the digest of what the step read. */

import { sha256 } from "../fetch/sha256.js";

const MAX_BYTES = 64 * 2 ** 20;

/** Results of the steps of chains that are marked `cache`; chains may share one. What was used least lately goes first. */
export class StepCache {
  /** @param {{maxBytes?: number}} [options] The most that is kept. */
  constructor({ maxBytes = MAX_BYTES } = {}) {
    this.maxBytes = maxBytes;
    this.bytes = 0;
    /** @type {Map<string, {value: any, size: number}>} */
    this.held = new Map();
  }

  /** @returns {number} How many results are kept. */
  get size() {
    return this.held.size;
  }

  /** @param {string} key @returns {{value: any} | undefined} A copy of the result. */
  get(key) {
    const found = this.held.get(key);
    if (!found) return undefined;
    this.held.delete(key);
    this.held.set(key, found);
    return { value: structuredClone(found.value) };
  }

  /** @param {string} key @param {any} value */
  put(key, value) {
    const size = sizeOf(value);
    if (size > this.maxBytes) return;
    this.bytes += size - (this.held.get(key)?.size ?? 0);
    this.held.delete(key);
    this.held.set(key, { value: structuredClone(value), size });
    for (const [old, { size: freed }] of this.held) {
      if (this.bytes <= this.maxBytes) break;
      this.held.delete(old);
      this.bytes -= freed;
    }
  }

  /** Forget all results. */
  clear() {
    this.held.clear();
    this.bytes = 0;
  }
}

/** The cache of chains that are given no other. */
export const IN_MEMORY = new StepCache();

/** @param {any} value @returns {number} About how many bytes it takes. */
function sizeOf(value) {
  if (ArrayBuffer.isView(value)) return value.byteLength;
  if (typeof value === "string") return 2 * value.length;
  if (value === null || typeof value !== "object") return 8;
  return Object.entries(value).reduce((sum, [key, one]) => sum + 2 * key.length + sizeOf(one), 16);
}

/**
 * @param {any} value What a step reads.
 * @returns {Promise<string | null>} Its SHA-256; null of a value that has none, such as an element of the page.
 */
export async function digest(value) {
  /** @type {Uint8Array[]} */
  const bytes = [];
  const encoder = new TextEncoder();
  /** @param {any} one @returns {any} */
  const plain = (one) => {
    if (ArrayBuffer.isView(one)) {
      bytes.push(new Uint8Array(one.buffer, one.byteOffset, one.byteLength));
      return { $bytes: [one.constructor.name, one.byteLength] };
    }
    if (one instanceof ArrayBuffer) return plain(new Uint8Array(one));
    if (Array.isArray(one)) return one.map(plain);
    if (typeof one !== "object" || one === null) {
      if (typeof one === "function" || typeof one === "symbol" || typeof one === "bigint") throw new TypeError("no digest");
      return one;
    }
    if (Object.getPrototypeOf(one) !== Object.prototype) throw new TypeError("no digest");
    return Object.fromEntries(Object.entries(one).map(([key, inner]) => [key.startsWith("$") ? `$${key}` : key, plain(inner)]));
  };
  try {
    const text = encoder.encode(JSON.stringify(plain(value)));
    const all = new Uint8Array(bytes.reduce((sum, one) => sum + one.length, text.length + 1));
    all.set(text);
    let at = text.length + 1;
    for (const one of bytes) {
      all.set(one, at);
      at += one.length;
    }
    return await sha256(all);
  } catch {
    return null;
  }
}
