/** Pass results from one thread to another that blocks, through shared memory. */

import { EdgeInferError } from "../errors.js";

/** @typedef {{described: string, buffers: Uint8Array[]}} Crossed JSON, and the bytes of each tensor that is not of strings. */
/** @typedef {{state: Int32Array<SharedArrayBuffer>, data: Uint8Array<SharedArrayBuffer>}} Shelf */

/** What `state[0]` says: nothing yet; the answer lies in `data`; or it is longer, `state[1]` bytes. */
export const [WAITING, THERE, LONGER] = [0, 1, 2];
const FIRST_BYTES = 2 ** 20;

/** @returns {Shelf} */
export function newShelf() {
  return { state: new Int32Array(new SharedArrayBuffer(8)), data: new Uint8Array(new SharedArrayBuffer(FIRST_BYTES)) };
}

/**
 * @param {Crossed} crossed
 * @param {import("../errors.js").ErrorDocument} [error]
 * @returns {Uint8Array<ArrayBuffer>} The length of a text, the text, and all bytes.
 */
export function packed({ described, buffers }, error) {
  const sizes = buffers.map((buffer) => buffer.byteLength);
  const text = new TextEncoder().encode(JSON.stringify({ described, sizes, error }));
  const bytes = new Uint8Array(4 + text.length + sizes.reduce((sum, size) => sum + size, 0));
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  let offset = 4 + text.length;
  for (const buffer of buffers) {
    bytes.set(buffer, offset);
    offset += buffer.byteLength;
  }
  return bytes;
}

/**
 * @param {Shelf} shelf
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Uint8Array<ArrayBuffer>} What is left to put on a longer shelf; empty where all of it was put.
 */
export function put({ state, data }, bytes) {
  const fits = bytes.length <= data.length;
  if (fits) data.set(bytes);
  else state[1] = bytes.length;
  Atomics.store(state, 0, fits ? THERE : LONGER);
  Atomics.notify(state, 0);
  return fits ? new Uint8Array() : bytes;
}

/**
 * @param {Shelf} shelf
 * @returns {Crossed}
 */
export function take({ data }) {
  const words = new Uint32Array(data.buffer, 0, 1);
  const text = new TextDecoder().decode(data.slice(4, 4 + words[0]));
  const { described, sizes, error } = JSON.parse(text);
  if (error) throw EdgeInferError.fromJSON(error);
  let offset = 4 + words[0];
  const buffers = sizes.map((/** @type {number} */ size) => {
    offset += size;
    return data.slice(offset - size, offset);
  });
  return { described, buffers };
}
