/**
 * Keep named files in the origin's private file system, in the Cache API or in memory, behind one interface. A file grows
 * from its start, so that the bytes written before a cut are there afterwards.
 */

/** @typedef {"opfs" | "cache" | "memory"} PlaceKind */
/**
 * @typedef {object} Place
 * @property {PlaceKind} kind
 * @property {(name: string, into?: Uint8Array<ArrayBuffer>) => Promise<Uint8Array<ArrayBuffer> | null>} read What was written;
 *   null where nothing was. It is a part of `into`, where that is given and has room for it.
 * @property {(name: string, offset: number, bytes: Uint8Array<ArrayBuffer>) => Promise<void>} write Write there and
 *   drop what came after.
 * @property {(name: string) => Promise<void>} remove
 * @property {() => Promise<string[]>} names
 * @property {(name: string) => Promise<number>} size How many bytes it has; 0 where nothing was written.
 * @property {(name: string) => Promise<Access | null>} [access] Opens it for reading and writing, for nobody else until it is
 *   closed; null where another tab has it open.
 */

/** @typedef {{truncate: (size: number) => void, write: (bytes: Uint8Array, options: {at: number}) => number, getSize: () => number,
 *   read: (bytes: Uint8Array, options: {at: number}) => number, flush: () => void, close: () => void}} Access */
/** @typedef {{createSyncAccessHandle: () => Promise<Access>}} SyncHandle What TypeScript knows in workers only. */

const FOLDER = "edge-infer";
/** How the names of what `python-image.js` keeps begin; it is the first to go where room is needed. */
export const PYTHON_IMAGE = "python-";

/**
 * Open the best place that this page has.
 *
 * @returns {Promise<{place: Place, notice: string}>} The notice says what is lost; empty where nothing is.
 */
export async function openPlace() {
  const hasHandles = typeof FileSystemFileHandle !== "undefined" && "createSyncAccessHandle" in FileSystemFileHandle.prototype;
  try {
    if (hasHandles && typeof globalThis.navigator?.storage?.getDirectory === "function") {
      return { place: await openFiles(), notice: "" };
    }
  } catch {
    // A browser that has it may still refuse it: Firefox in a private window.
  }
  try {
    if (globalThis.caches) return { place: await openCache(), notice: "" };
  } catch {
    // The same, for the Cache API.
  }
  const why = globalThis.isSecureContext === false ? "the page is not in a secure context" : "the browser offers no storage";
  return { place: openMemory(), notice: `Models are kept in memory only, and loaded again at the next visit: ${why}` };
}

/** @returns {Promise<Place>} Files of the origin's private file system; in a worker. */
async function openFiles() {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle(FOLDER, { create: true });
  const opened = async (/** @type {string} */ name) => {
    const handle = await folder.getFileHandle(name, { create: true });
    return await /** @type {SyncHandle} */ (/** @type {unknown} */ (handle)).createSyncAccessHandle();
  };
  return {
    kind: "opfs",
    async read(name, into) {
      const handle = await folder.getFileHandle(name).catch(ifMissing);
      const file = await handle?.getFile();
      if (!file) return null;
      if (!into || file.size > into.length) return new Uint8Array(await file.arrayBuffer());
      let at = 0;
      for (const reader = file.stream().getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) return into.subarray(0, at);
        into.set(value, at);
        at += value.length;
      }
    },
    async access(name) {
      return await opened(name).catch((error) => {
        if (error instanceof DOMException && error.name === "NoModificationAllowedError") return null;
        throw error;
      });
    },
    async write(name, offset, bytes) {
      const access = await opened(name);
      try {
        access.truncate(offset);
        if (access.write(bytes, { at: offset }) !== bytes.length) throw new DOMException("no room", "QuotaExceededError");
        access.flush();
      } finally {
        access.close();
      }
    },
    async remove(name) {
      await folder.removeEntry(name).catch(ifMissing);
    },
    async names() {
      const names = [];
      for await (const name of folder.keys()) names.push(name);
      return names;
    },
    async size(name) {
      const handle = await folder.getFileHandle(name).catch(ifMissing);
      return handle ? (await handle.getFile()).size : 0;
    },
  };
}

/**
 * @param {unknown} error
 * @returns {null}
 */
function ifMissing(error) {
  if (error instanceof DOMException && error.name === "NotFoundError") return null;
  throw error;
}

/** @returns {Promise<Place>} Entries of a cache, one for each piece that was written. */
async function openCache() {
  const cache = await caches.open(FOLDER);
  const address = (/** @type {string} */ name, /** @type {number | string} */ offset) =>
    `${globalThis.location.origin}/.${FOLDER}/${name}/${offset}`;
  /** @param {string} name */
  const pieces = async (name) => {
    const prefix = address(name, "");
    const offsets = (await cache.keys()).filter(({ url }) => url.startsWith(prefix)).map(({ url }) => Number(url.slice(prefix.length)));
    return offsets.sort((one, other) => one - other);
  };
  return {
    kind: "cache",
    async read(name) {
      const parts = [];
      let size = 0;
      for (const offset of await pieces(name)) {
        const found = offset === size ? await cache.match(address(name, offset)) : undefined;
        if (!found) break;
        parts.push(new Uint8Array(await found.arrayBuffer()));
        size += parts[parts.length - 1].length;
      }
      if (parts.length === 0) return null;
      const bytes = new Uint8Array(size);
      let at = 0;
      for (const part of parts) {
        bytes.set(part, at);
        at += part.length;
      }
      return bytes;
    },
    async write(name, offset, bytes) {
      for (const old of await pieces(name)) if (old >= offset) await cache.delete(address(name, old));
      await cache.put(address(name, offset), new Response(bytes));
    },
    async remove(name) {
      for (const offset of await pieces(name)) await cache.delete(address(name, offset));
    },
    async names() {
      return [...new Set((await cache.keys()).map(({ url }) => url.split("/").at(-2) ?? ""))];
    },
    async size(name) {
      const found = await Promise.all((await pieces(name)).map((offset) => cache.match(address(name, offset))));
      const blobs = await Promise.all(found.map((piece) => piece?.blob()));
      return blobs.reduce((sum, blob) => sum + (blob?.size ?? 0), 0);
    },
  };
}

/** @returns {Place} The worker's own memory. */
function openMemory() {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const files = new Map();
  return {
    kind: "memory",
    read: async (name) => files.get(name) ?? null,
    async write(name, offset, bytes) {
      const grown = new Uint8Array(offset + bytes.length);
      grown.set((files.get(name) ?? grown).subarray(0, offset));
      grown.set(bytes, offset);
      files.set(name, grown);
    },
    async remove(name) {
      files.delete(name);
    },
    names: async () => [...files.keys()],
    size: async (name) => files.get(name)?.length ?? 0,
  };
}
