/**
 * Files of the page's storage that are read where they are wanted and never held in memory as a whole: a large model goes from
 * the network to the storage part by part, and from there into the engine tensor by tensor.
 */

import { PART_BYTES, transfer } from "../fetch/transfer.js";
import { sha256 } from "../fetch/sha256.js";

/** @typedef {import("./place.js").Access} Access */
/** @typedef {import("../fetch/transfer.js").FileEntry} FileEntry */

const BLOCK_BYTES = 65_536;

/** A file that was checked. Nobody else can write it until it is closed. */
export class StoredFile {
  /**
   * @param {Access} access
   * @param {number} size
   */
  constructor(access, size) {
    this.access = access;
    this.length = size;
    this.byteLength = size;
    this.block = new Uint8Array(0);
    this.blockStart = 0;
    this.lent = new Uint8Array(0);
  }

  /**
   * @param {number} index
   * @returns {number | undefined} The byte there.
   */
  at(index) {
    if (index < this.blockStart || index >= this.blockStart + this.block.length) {
      this.blockStart = index;
      this.block = this.subarray(index, Math.min(index + BLOCK_BYTES, this.length));
    }
    return this.block[index - this.blockStart];
  }

  /**
   * @param {number} start
   * @param {number} end
   * @returns {Uint8Array<ArrayBuffer>} A copy.
   */
  subarray(start, end) {
    const bytes = new Uint8Array(end - start);
    read(this.access, bytes, start);
    return bytes;
  }

  /**
   * @param {number} start
   * @param {number} end
   * @returns {Uint8Array<ArrayBuffer>} A copy that is valid until the next one: many large ones would wait for the garbage collector.
   */
  lend(start, end) {
    if (this.lent.length < end - start) this.lent = new Uint8Array(end - start);
    const bytes = this.lent.subarray(0, end - start);
    read(this.access, bytes, start);
    return bytes;
  }

  /**
   * Copy the whole file, a MiB at a time.
   *
   * @param {Uint8Array} target
   * @param {number} at Where it begins there.
   */
  copyTo(target, at) {
    for (let start = 0; start < this.length; start += PART_BYTES) {
      target.set(this.lend(start, Math.min(start + PART_BYTES, this.length)), at + start);
    }
  }

  close() {
    this.lent = this.block = new Uint8Array(0);
    this.access.close();
  }
}

/**
 * @param {Access} access
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {number} at
 */
function read(access, bytes, at) {
  if (access.read(bytes, { at }) !== bytes.length) throw new DOMException("the file is shorter than it was", "NotReadableError");
}

/**
 * Bring a file into the storage, what is missing of it by a download, and check each part of it.
 *
 * @param {Access} access Closed here where it fails.
 * @param {URL} url
 * @param {FileEntry} entry It has parts.
 * @param {import("../fetch/transfer.js").TransferOptions & {makeRoom: (bytes: number) => Promise<boolean>}} options
 * @returns {Promise<{file: StoredFile, isKept: boolean} | undefined>} Undefined where there is no room: what is good of it stays there.
 * @throws {DOMException} The storage fails. What `transfer` throws, too.
 */
export async function bring(access, url, entry, { makeRoom, ...options }) {
  try {
    const good = await goodParts(access, entry);
    if (good < entry.size) {
      if (!(await makeRoom(entry.size - good))) return closed(access);
      access.truncate(good);
      const onPart = async (/** @type {number} */ at, /** @type {Uint8Array<ArrayBuffer>} */ bytes) => {
        if (access.write(bytes, { at }) !== bytes.length) throw new DOMException("no room", "QuotaExceededError");
      };
      await transfer(url, entry, { ...options, good, passOn: true, onPart });
      access.flush();
    }
    return { file: new StoredFile(access, entry.size), isKept: good === entry.size };
  } catch (error) {
    closed(access);
    if (error instanceof DOMException && error.name === "QuotaExceededError") return undefined;
    throw error;
  }
}

/** @param {Access} access @returns {undefined} */
function closed(access) {
  try {
    access.flush();
  } catch {
    // Whoever reads the file next checks each of its parts.
  } finally {
    access.close();
  }
}

/**
 * @param {Access} access
 * @param {FileEntry} entry
 * @returns {Promise<number>} The leading bytes that are right: a multiple of a part's size, or all.
 */
async function goodParts(access, entry) {
  const size = access.getSize();
  if (size > entry.size) return 0;
  const buffer = new Uint8Array(PART_BYTES);
  let good = 0;
  for (const expected of entry.parts ?? []) {
    const part = buffer.subarray(0, Math.min(PART_BYTES, entry.size - good));
    if (good + part.length > size) break;
    read(access, part, good);
    if ((await sha256(part)) !== expected) break;
    good += part.length;
  }
  return good;
}
