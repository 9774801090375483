/** A page's storage in memory. */

/** @returns {import("../src/cache/place.js").Place & {files: Map<string, Uint8Array<ArrayBuffer>>}} */
export function memoryPlace() {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const files = new Map();
  return {
    kind: "memory",
    files,
    read: async (name) => files.get(name) ?? null,
    write: async (name, _offset, bytes) => void files.set(name, bytes),
    remove: async (name) => void files.delete(name),
    names: async () => [...files.keys()],
    size: async (name) => files.get(name)?.length ?? 0,
  };
}
