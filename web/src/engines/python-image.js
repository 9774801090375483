/**
 * What makes the next start of Python short, kept in the page's storage: Python's memory as it is when Pyodide has just
 * started, the memory of onnxruntime-web's engine, and their files unpacked, as decompressing them again takes longer than
 * reading them. Pyodide has the first behind private options (`_makeSnapshot`, `_loadSnapshot`), which the pinned version
 * is known to have; wherever something does not fit, the start is as usual.
 */

import { downloadBytes } from "../download.js";
import { PYTHON_IMAGE, openPlace } from "../places.js";
import { ORT_VERSION, ORT_WASM_BYTES, startOrtEngine } from "./ort.js";
import { FILE_BYTES, PYODIDE_VERSION, loadPyodide } from "./pyodide.js";

const NAME = `${PYTHON_IMAGE}${PYODIDE_VERSION}`;
/** What is written last: without it the image is not whole. */
const SEAL = `${NAME}.json`;
// All parts, and Python's memory once more while it is read.
const NEEDED_BYTES = 100 * 2 ** 20;
// What a start with edge-infer and its first session import of the standard library: found compiled in the image.
const PRELOADED = 'import gzip, hashlib, ipaddress, sysconfig, tarfile, urllib.parse; sysconfig.get_path("purelib")';

/** @typedef {"memory" | "wasm" | "stdlib" | "engine-wasm" | "engine-memory"} Part */
/** @typedef {{engine: string, parts: Record<Part, {bytes: number, sum: number}>}} Seal */

/** What an earlier visit kept; each part is read when it is asked for. */
export class PythonImage {
  /**
   * @param {import("../places.js").Place} place
   * @param {Seal} seal
   */
  constructor(place, seal) {
    this.place = place;
    this.seal = seal;
  }

  /**
   * @param {Part} part
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   * @throws {Error} It is not as it was written.
   */
  async read(part) {
    const bytes = await this.place.read(`${NAME}.${part}`);
    const sealed = this.seal.parts[part];
    if (bytes?.length !== sealed.bytes || sumOf(bytes) !== sealed.sum) throw new Error(`its part \`${part}\` is damaged`);
    return bytes;
  }
}

/** @returns {Promise<PythonImage | null>} Null where none is kept, or it is of another version. */
export async function openImage() {
  try {
    const { place } = await openPlace();
    if (place.kind !== "opfs") return null;
    const sealed = await place.read(SEAL);
    if (!sealed) return null;
    /** @type {Seal} */
    const seal = JSON.parse(new TextDecoder().decode(sealed));
    return seal.engine === ORT_VERSION ? new PythonImage(place, seal) : null;
  } catch {
    return null; // a storage that fails must not keep Python from starting
  }
}

/** Forget it. */
export async function dropImage() {
  const { place } = await openPlace();
  await clear(place);
}

/** @param {import("../places.js").Place} place */
async function clear(place) {
  // The seal first, and with it what another version has left.
  const others = (await place.names()).filter((name) => name.startsWith(PYTHON_IMAGE) && name !== SEAL);
  for (const name of [SEAL, ...others]) await place.remove(name);
}

/**
 * Start another Python and another engine, take their memory and keep it. Such a Python cannot run code that imports `js`:
 * it is of no other use, and this worker is to be closed.
 *
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<boolean>} Whether an image is kept now.
 */
export async function keepImage(root) {
  const { place } = await openPlace();
  if (place.kind !== "opfs") return false;
  if (await openImage()) return true;
  const { quota = Infinity, usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  if (quota - usage < NEEDED_BYTES) return false;
  const make = async () => {
    await clear(place);
    /** @type {Partial<Seal["parts"]>} */
    const parts = {};
    for await (const [part, bytes] of partsOf(root)) {
      await place.write(`${NAME}.${part}`, 0, bytes);
      parts[part] = { bytes: bytes.length, sum: sumOf(bytes) };
    }
    await place.write(SEAL, 0, new TextEncoder().encode(JSON.stringify({ engine: ORT_VERSION, parts })));
    return true;
  };
  // One tab is enough.
  const options = { ifAvailable: true };
  return navigator.locks ? navigator.locks.request(`edge-infer/${NAME}`, options, (lock) => (lock ? make() : false)) : make();
}

/**
 * @param {string} root
 * @returns {AsyncGenerator<[Part, Uint8Array<ArrayBuffer>]>}
 */
async function* partsOf(root) {
  const [folder, base] = [new URL("vendor/pyodide/", root), new URL("vendor/onnxruntime-web/", root)];
  const pyodide = await loadPyodide(folder, { _makeSnapshot: true });
  pyodide.runPython(PRELOADED);
  yield ["memory", /** @type {any} */ (pyodide).makeMemorySnapshot()];
  const engine = await startOrtEngine({ base, threads: 1 });
  yield ["engine-memory", engine.memoryImage()];
  /** @type {[Part, URL, number][]} */
  const files = [
    ["wasm", new URL("pyodide.asm.wasm", folder), FILE_BYTES["pyodide.asm.wasm"]],
    ["stdlib", new URL("python_stdlib.zip", folder), FILE_BYTES["python_stdlib.zip"]],
    ["engine-wasm", new URL("ort-wasm-simd-threaded.wasm", base), ORT_WASM_BYTES],
  ];
  for (const [part, url, size] of files) {
    const bytes = await downloadBytes(url, { phase: "python" });
    if (bytes.length !== size) throw new Error(`${url} has ${bytes.length} bytes, expected ${size}`);
    yield [part, bytes];
  }
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
