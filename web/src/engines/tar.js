/**
 * Read the files of a tar archive, as the server packs them for Python in a page: POSIX's ustar format
 * (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html, "ustar Interchange Format"), files alone.
 */

const BLOCK = 512;

/**
 * @param {Uint8Array} archive
 * @returns {Generator<[path: string, bytes: Uint8Array]>} Each file, as a view of the archive.
 */
export function* filesOf(archive) {
  const decoder = new TextDecoder();
  const text = (/** @type {number} */ start, /** @type {number} */ length) => decoder.decode(archive.subarray(start, start + length)).split("\0", 1)[0];
  for (let at = 0; archive[at]; ) {
    const [name, prefix, size] = [text(at, 100), text(at + 345, 155), Number.parseInt(text(at + 124, 12), 8)];
    const start = at + BLOCK;
    if (!(start + size <= archive.length)) throw new RangeError(`The archive ends within \`${name}\``);
    yield [prefix ? `${prefix}/${name}` : name, archive.subarray(start, start + size)];
    at = start + Math.ceil(size / BLOCK) * BLOCK;
  }
}
