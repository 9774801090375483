/** Keep an image of a started Python and engine in the page's storage: parts that count only when all are written whole. */

import { PYTHON_IMAGE, openPlace } from "./place.js";

// All parts, and Python's memory once more while it is read.
const NEEDED_BYTES = 100 * 2 ** 20;

/** @typedef {"memory" | "wasm" | "stdlib" | "engine-wasm" | "engine-memory"} Part */
/** @typedef {{python: string, engine: string}} Versions Of Pyodide and of onnxruntime-web. */
/** @typedef {{engine: string, parts: Record<Part, {bytes: number, sum: number}>}} Seal */

/** What an earlier visit kept; each part is read when it is asked for. */
export class PythonImage {
  /**
   * @param {import("./place.js").Place} place
   * @param {string} name
   * @param {Seal} seal
   */
  constructor(place, name, seal) {
    this.place = place;
    this.name = name;
    this.seal = seal;
  }

  /**
   * @param {Part} part
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   * @throws {Error} It is not as it was written.
   */
  async read(part) {
    const bytes = await this.place.read(`${this.name}.${part}`);
    const sealed = this.seal.parts[part];
    if (bytes?.length !== sealed.bytes || sumOf(bytes) !== sealed.sum) throw new Error(`its part \`${part}\` is damaged`);
    return bytes;
  }
}

/** @param {Versions} versions @returns {Promise<PythonImage | null>} Null where none is kept, or it is of another version. */
export async function openImage({ python, engine }) {
  try {
    const { place } = await openPlace();
    if (place.kind !== "opfs") return null;
    const name = PYTHON_IMAGE + python;
    const sealed = await place.read(`${name}.json`);
    if (!sealed) return null;
    /** @type {Seal} */
    const seal = JSON.parse(new TextDecoder().decode(sealed));
    return seal.engine === engine ? new PythonImage(place, name, seal) : null;
  } catch {
    return null; // a storage that fails must not keep Python from starting
  }
}

/** Forget it, and what another version has left. */
export async function dropImage() {
  const { place } = await openPlace();
  const names = (await place.names()).filter((name) => name.startsWith(PYTHON_IMAGE));
  // The seal first: without it the image is not whole.
  for (const name of names.sort((one, other) => Number(other.endsWith(".json")) - Number(one.endsWith(".json")))) await place.remove(name);
}

/**
 * Write an image, unless one is kept.
 *
 * @param {Versions} versions
 * @param {() => AsyncIterable<[Part, Uint8Array<ArrayBuffer>]>} make Makes its parts.
 * @returns {Promise<boolean>} Whether one is kept now.
 */
export async function writeImage(versions, make) {
  const { place } = await openPlace();
  if (place.kind !== "opfs") return false;
  if (await openImage(versions)) return true;
  const { quota = Infinity, usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  if (quota - usage < NEEDED_BYTES) return false;
  const name = PYTHON_IMAGE + versions.python;
  const write = async () => {
    await dropImage();
    /** @type {Partial<Seal["parts"]>} */
    const parts = {};
    for await (const [part, bytes] of make()) {
      await place.write(`${name}.${part}`, 0, bytes);
      parts[part] = { bytes: bytes.length, sum: sumOf(bytes) };
    }
    await place.write(`${name}.json`, 0, new TextEncoder().encode(JSON.stringify({ engine: versions.engine, parts })));
    return true;
  };
  // One tab is enough.
  const options = { ifAvailable: true };
  return navigator.locks ? navigator.locks.request(`edge-infer/${name}`, options, (lock) => (lock ? write() : false)) : write();
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {number} A checksum against damage, not against malice: whoever can write here can change the page as well.
 */
function sumOf(bytes) {
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  // Four sums side by side, which a processor computes at the same time.
  let [a, b, c, d] = [bytes.length, 1, 2, 3];
  const whole = words.length & ~3;
  for (let i = 0; i < whole; i += 4) {
    a = (Math.imul(a, 31) + words[i]) | 0;
    b = (Math.imul(b, 31) + words[i + 1]) | 0;
    c = (Math.imul(c, 31) + words[i + 2]) | 0;
    d = (Math.imul(d, 31) + words[i + 3]) | 0;
  }
  for (let i = whole * 4; i < bytes.length; i++) a = (Math.imul(a, 31) + bytes[i]) | 0;
  return (Math.imul(a, 7) + Math.imul(b, 11) + Math.imul(c, 13) + d) | 0;
}
