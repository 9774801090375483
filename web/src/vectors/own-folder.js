/** A folder of the origin's private file system for one index; memory where the browser offers none. */

import { EdgeInferError } from "../errors.js";

/**
 * @typedef {object} OwnFolder
 * @property {boolean} isKept Whether it is there at the next visit.
 * @property {(path: string) => Promise<Uint8Array<ArrayBuffer> | null>} read
 * @property {(path: string, bytes: Uint8Array<ArrayBuffer>) => Promise<void>} write Whole or not at all, where the browser can.
 * @property {(path: string) => Promise<void>} remove
 * @property {() => Promise<void>} clear Removes the folder.
 * @property {<T>(work: () => Promise<T>) => Promise<T>} alone Does work while no other page changes the folder, where the browser can.
 */
/** @typedef {{createSyncAccessHandle: () => Promise<{truncate: (size: number) => void, write: (bytes: Uint8Array, options: {at: number}) => number, flush: () => void, close: () => void}>}} SyncHandle */

const FOLDER = "edge-infer-indexes";
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/**
 * @param {string} name
 * @returns {Promise<OwnFolder>}
 * @throws {EdgeInferError} `input_error`: it is no name.
 */
export async function openFolder(name) {
  if (!NAME.test(name)) throw new EdgeInferError(`\`${name}\` is not the name of an index`, "input_error", { hint: "letters, digits, `.`, `_` and `-`" });
  try {
    if (typeof globalThis.navigator?.storage?.getDirectory === "function") return await ofFiles(name);
  } catch {
    // A browser that has it may still refuse it: Firefox in a private window.
  }
  return inMemory();
}

/** @param {string} name @returns {Promise<OwnFolder>} */
async function ofFiles(name) {
  const root = await navigator.storage.getDirectory();
  const parent = await root.getDirectoryHandle(FOLDER, { create: true });
  let folder = await parent.getDirectoryHandle(name, { create: true });
  /** @param {string} path @param {boolean} create */
  const place = async (path, create) => {
    const parts = path.split("/");
    let here = folder;
    for (const part of parts.slice(0, -1)) here = await here.getDirectoryHandle(part, { create });
    return { here, file: parts[parts.length - 1] };
  };
  return {
    isKept: true,
    alone: (work) => (navigator.locks ? navigator.locks.request(`${FOLDER}/${name}`, work) : work()),
    async read(path) {
      try {
        const { here, file } = await place(path, false);
        return new Uint8Array(await (await (await here.getFileHandle(file)).getFile()).arrayBuffer());
      } catch (error) {
        return ifMissing(error);
      }
    },
    async write(path, bytes) {
      const { here, file } = await place(path, true);
      const handle = await here.getFileHandle(file, { create: true });
      try {
        if (typeof handle.createWritable === "function") {
          const stream = await handle.createWritable(); // what was there stays until it is closed
          await stream.write(bytes);
          await stream.close();
          return;
        }
        const access = await /** @type {SyncHandle} */ (/** @type {unknown} */ (handle)).createSyncAccessHandle();
        try {
          access.truncate(0);
          access.write(bytes, { at: 0 });
          access.flush();
        } finally {
          access.close();
        }
      } catch (cause) {
        throw new EdgeInferError(`There is no room for \`${path}\` in the page's storage`, "unsupported", { hint: "remove documents, or free the site's data", cause });
      }
    },
    async remove(path) {
      try {
        const { here, file } = await place(path, false);
        await here.removeEntry(file);
      } catch (error) {
        ifMissing(error);
      }
    },
    async clear() {
      await parent.removeEntry(name, { recursive: true }).catch(ifMissing);
      folder = await parent.getDirectoryHandle(name, { create: true });
    },
  };
}

/** @param {unknown} error @returns {null} */
function ifMissing(error) {
  if (error instanceof DOMException && error.name === "NotFoundError") return null;
  throw error;
}

/** @returns {OwnFolder} */
function inMemory() {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const files = new Map();
  return {
    isKept: false,
    alone: (work) => work(),
    read: async (path) => files.get(path) ?? null,
    write: async (path, bytes) => void files.set(path, bytes),
    remove: async (path) => void files.delete(path),
    clear: async () => files.clear(),
  };
}
