/**
 * Python's memory as it is when Pyodide has just started, kept in the page's storage: the next start reads it and skips
 * most of the work. Pyodide has this behind private options (`_makeSnapshot`, `_loadSnapshot`), which the pinned version
 * is known to have; wherever something does not fit, Python starts as usual.
 */

import { openPlace } from "../places.js";
import { PYTHON_IMAGE } from "../store.js";
import { PYODIDE_VERSION, loadPyodide } from "./pyodide.js";

const NAME = `${PYTHON_IMAGE}${PYODIDE_VERSION}`;
/** What is written last: without it the image is not whole. */
const SEAL = `${NAME}.json`;
// The image is read into new memory, and may be twice there for a moment.
const NEEDED_BYTES = 80 * 2 ** 20;

/** @typedef {{bytes: number, sum: number}} Seal */

/**
 * Read the image that was kept.
 *
 * @returns {Promise<Uint8Array<ArrayBuffer> | null>} Null where there is none, or it is not as it was written.
 */
export async function readImage() {
  try {
    const { place } = await openPlace();
    if (place.kind !== "opfs") return null;
    const sealed = await place.read(SEAL);
    if (!sealed) return null;
    /** @type {Seal} */
    const seal = JSON.parse(new TextDecoder().decode(sealed));
    const image = await place.read(NAME);
    return image && image.length === seal.bytes && sumOf(image) === seal.sum ? image : null;
  } catch {
    return null; // a storage that fails must not keep Python from starting
  }
}

/** Forget it. */
export async function dropImage() {
  const { place } = await openPlace();
  await place.remove(SEAL);
  await place.remove(NAME);
}

/**
 * Start another Python, take its memory and keep it. Such a Python cannot run code that imports `js`: it is of no other use,
 * and this worker is to be closed.
 *
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<boolean>} Whether an image is kept now.
 */
export async function keepImage(root) {
  const { place } = await openPlace();
  if (place.kind !== "opfs") return false;
  if (await readImage()) return true;
  const { quota = Infinity, usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  if (quota - usage < NEEDED_BYTES) return false;
  const make = async () => {
    const pyodide = await loadPyodide(new URL("vendor/pyodide/", root), { _makeSnapshot: true });
    const image = /** @type {any} */ (pyodide).makeMemorySnapshot();
    // The seal first, and with it what another version has left.
    const old = (await place.names()).filter((name) => name.startsWith(PYTHON_IMAGE) && name !== NAME);
    for (const name of [SEAL, ...old]) await place.remove(name);
    await place.write(NAME, 0, image);
    const seal = { bytes: image.length, sum: sumOf(image) };
    await place.write(SEAL, 0, new TextEncoder().encode(JSON.stringify(seal)));
    return true;
  };
  // One tab is enough.
  const options = { ifAvailable: true };
  return navigator.locks ? navigator.locks.request(`edge-infer/${NAME}`, options, (lock) => (lock ? make() : false)) : make();
}

/**
 * @param {Uint8Array<ArrayBuffer>} image
 * @returns {number} A checksum against damage, not against malice: whoever can write here can change the page as well.
 */
function sumOf(image) {
  const words = new Uint32Array(image.buffer, image.byteOffset, image.length >> 2);
  let sum = image.length;
  for (let i = 0; i < words.length; i++) sum = (Math.imul(sum, 31) + words[i]) | 0;
  return sum;
}
