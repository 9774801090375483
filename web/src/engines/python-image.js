/**
 * Make the image that shortens the next start of Python: Python's memory when Pyodide has just started, the memory of
 * onnxruntime-web's engine, and their files unpacked, as decompressing them again takes longer than reading them. Pyodide
 * has the first behind private options (`_makeSnapshot`, `_loadSnapshot`), which the pinned version is known to have.
 */

import { writeImage } from "../cache/python-image.js";
import { downloadBytes } from "../fetch/download.js";
import { ORT_VERSION, ORT_WASM_BYTES, startOrtEngine } from "./ort.js";
import { FILE_BYTES, PYODIDE_VERSION, loadPyodide } from "./pyodide.js";

/** @typedef {import("../cache/python-image.js").Part} Part */

// What a start with edge-infer and its first session import of the standard library: found compiled in the image.
const PRELOADED = 'import gzip, hashlib, ipaddress, sysconfig, tarfile, urllib.parse; sysconfig.get_path("purelib")';

/**
 * Start another Python and another engine, take their memory and keep it. Such a Python cannot run code that imports `js`:
 * it is of no other use, and this worker is to be closed.
 *
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<boolean>} Whether an image is kept now.
 */
export function keepImage(root) {
  return writeImage({ python: PYODIDE_VERSION, engine: ORT_VERSION }, () => partsOf(root));
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
