/**
 * Keep the models of a page for its next visit: checked by their hashes, resumed after a cut, the oldest removed where the
 * browser has no room for a new one.
 *
 * A file is named by its sha256 and grows from its start. Nothing marks it as complete: every reader checks its size and
 * hashes, so that a partial or damaged file never passes for a whole one.
 */

import { locked } from "./lock.js";
import { PYTHON_IMAGE, openPlace } from "./place.js";
import { bring } from "./stored-file.js";
import { goodBytes, transfer } from "../fetch/transfer.js";

/** @typedef {import("../fetch/transfer.js").FileEntry} FileEntry */
/** @typedef {import("./place.js").Place} Place */
/** @typedef {{size: number, used: number, model: string}} Known A file's size in bytes, when it was used, and for what. */
/**
 * @typedef {object} Kept
 * @property {string} model The name of the bundle that it belongs to; of a model of a store, and of a file that no manifest lists, the address.
 * @property {number} bytes How many of its bytes are kept: fewer than it has where the download was cut, or the room was too small.
 * @property {string} used When it was last loaded, as ISO 8601.
 */

const INDEX = "index.json";
const LOCK = "edge-infer";
// Storage is not exact to the byte: file systems round up.
const MARGIN = 1.02;
// Smaller files are read as a whole, which is quicker.
const MIN_IN_PLACE = 16 * 2 ** 20;

/** What this page keeps; opened by `openStore`. */
export class Store {
  /**
   * @param {Place} place
   * @param {string} notice
   */
  constructor(place, notice) {
    this.place = place;
    /** What the user of a page should know, such as that nothing can be kept. @type {string[]} */
    this.notices = notice ? [notice] : [];
    /** Files that are never given up for others: those of an active version. @type {Set<string>} */
    this.spared = new Set();
  }

  get kind() {
    return this.place.kind;
  }

  /**
   * Return a file: kept from an earlier visit, downloaded, or the one continued by the other.
   *
   * @param {URL} url
   * @param {FileEntry} entry
   * @param {string} model The bundle's name.
   * @param {import("../fetch/transfer.js").TransferOptions} options
   * @returns {Promise<{bytes: Uint8Array<ArrayBuffer>, isKept: boolean}>}
   */
  async file(url, entry, model, options) {
    // A second tab waits here, and then finds the file.
    const work = async () => {
      // Asked for now: another tab may have been waited for.
      const target = options.into?.(entry.size);
      const found = await this.place.read(entry.sha256, target);
      const good = found ? await goodBytes(found, entry) : 0;
      if (found && good === entry.size) {
        const file = entry.path.split("/").pop() ?? "";
        options.onProgress?.({ phase: "model", file, loaded: good, total: good, cached: true });
        await this.note(entry, model);
        return { bytes: placed(found, target), isKept: true };
      }
      let canKeep = await this.makeRoom(entry, entry.size - good);
      if (canKeep) await this.note(entry, model);
      const onPart = async (/** @type {number} */ offset, /** @type {Uint8Array<ArrayBuffer>} */ bytes) => {
        canKeep = canKeep && (await this.write(entry, offset, bytes));
      };
      const have = found?.subarray(0, good);
      const into = target && (() => target);
      return { bytes: await transfer(url, entry, { ...options, have, onPart, into }), isKept: false };
    };
    return this.alone(entry, options.signal, work);
  }

  /**
   * Bring a large file into the storage, as `file` does, and leave it there, to be read where it is wanted.
   *
   * @param {URL} url
   * @param {FileEntry} entry
   * @param {string} model
   * @param {import("../fetch/transfer.js").TransferOptions} options
   * @returns {Promise<{bytes: import("./stored-file.js").StoredFile, isKept: boolean} | undefined>} Undefined where it is small, where
   *   the storage has no room, fails or cannot be read so, and where another tab reads it.
   */
  async inPlace(url, entry, model, options) {
    if (entry.size < MIN_IN_PLACE || !entry.parts?.length) return undefined;
    return this.alone(entry, options.signal, () => this.broughtInPlace(url, entry, model, options)).catch((error) => {
      // A model runs without the storage too; `file` says what is kept of it.
      if (!(error instanceof DOMException) || options.signal?.aborted) throw error;
      return undefined;
    });
  }

  /**
   * @param {URL} url
   * @param {FileEntry} entry
   * @param {string} model
   * @param {import("../fetch/transfer.js").TransferOptions} options
   */
  async broughtInPlace(url, entry, model, options) {
    const access = await this.place.access?.(entry.sha256);
    if (!access) return undefined;
    // Listed before it is there: what is not listed is never given up for others.
    const makeRoom = async (/** @type {number} */ bytes) => {
      if (!(await this.makeRoom(entry, bytes))) return false;
      await this.note(entry, model);
      return true;
    };
    const found = await bring(access, url, entry, { ...options, makeRoom });
    if (!found) return undefined;
    if (found.isKept) await this.note(entry, model);
    const file = entry.path.split("/").pop() ?? "";
    if (found.isKept) options.onProgress?.({ phase: "model", file, loaded: entry.size, total: entry.size, cached: true });
    return { bytes: found.file, isKept: found.isKept };
  }

  /**
   * Keep a file that has arrived, where there is room for it.
   *
   * @param {FileEntry} entry
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @param {string} model
   */
  async put(entry, bytes, model) {
    await this.alone(entry, undefined, async () => {
      if (!(await this.makeRoom(entry, entry.size))) return;
      await this.note(entry, model);
      if ((await this.place.size(entry.sha256)) !== entry.size) await this.write(entry, 0, bytes);
    });
  }

  /**
   * Keep a small file under a name of its own, such as a manifest by its address.
   *
   * @param {string} name
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  async remember(name, bytes) {
    try {
      await locked(`${LOCK}/${name}`, undefined, () => this.place.write(name, 0, bytes));
    } catch (error) {
      this.notice(`\`${name}\` could not be kept: ${said(error)}`);
    }
  }

  /** @param {string} name */
  recall(name) {
    return this.place.read(name);
  }

  /** @returns {Promise<Kept[]>} The models that are kept, the one used last first. */
  async list() {
    const index = await this.index();
    const names = new Set(await this.place.names());
    const there = Object.entries(index).filter(([name]) => names.has(name));
    there.sort(([, one], [, other]) => other.used - one.used);
    return Promise.all(
      there.map(async ([name, { model, used }]) => ({ model, bytes: await this.place.size(name), used: new Date(used).toISOString() })),
    );
  }

  /**
   * Work on a file, as long as no other page does that gets on with it.
   *
   * @template T
   * @param {FileEntry} entry
   * @param {AbortSignal | undefined} signal
   * @param {() => Promise<T>} work
   */
  alone({ sha256 }, signal, work) {
    return locked(`${LOCK}/${sha256}`, signal, work, () => this.place.size(sha256));
  }

  /** Remove everything. */
  async clear() {
    await locked(LOCK, undefined, async () => {
      for (const name of await this.place.names()) await this.place.remove(name);
    });
  }

  /**
   * @param {FileEntry} entry
   * @param {number} offset
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @returns {Promise<boolean>} Whether it was written.
   */
  async write(entry, offset, bytes) {
    for (;;) {
      try {
        await this.place.write(entry.sha256, offset, bytes);
        return true;
      } catch (error) {
        const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
        if (isFull && (await this.evict(entry.sha256))) continue;
        this.notice(`\`${entry.path}\` is in memory only, and loaded again at the next visit: ${said(error)}`);
        return false;
      }
    }
  }

  /**
   * @param {FileEntry} entry
   * @param {number} bytes
   * @returns {Promise<boolean>} Whether there is room for so many bytes now.
   */
  async makeRoom(entry, bytes) {
    if (this.kind === "memory") return true;
    for (;;) {
      const { quota, usage } = (await navigator.storage?.estimate?.()) ?? {};
      if (quota === undefined || usage === undefined || quota - usage >= bytes * MARGIN) return true;
      if (!(await this.evict(entry.sha256))) {
        this.notice(
          `\`${entry.path}\` is in memory only, and loaded again at the next visit: it has ${bytes} bytes, and the ` +
            `browser has room for ${Math.max(0, quota - usage)}`,
        );
        return false;
      }
    }
  }

  /**
   * Give up the model that was used least recently.
   *
   * @param {string} spared The file that is needed now.
   * @returns {Promise<boolean>} Whether there was one.
   */
  async evict(spared) {
    const names = new Set(await this.place.names());
    const image = [...names].filter((name) => name.startsWith(PYTHON_IMAGE));
    if (image.length > 0) {
      for (const name of image) await this.place.remove(name);
      this.notice("The image of Python was removed from the page's storage to make room; its next start is longer");
      return true;
    }
    const index = await this.index();
    const others = Object.entries(index).filter(([name]) => name !== spared && !this.spared.has(name) && names.has(name));
    const [oldest] = others.sort(([, one], [, other]) => one.used - other.used);
    if (!oldest) return false;
    try {
      await this.place.remove(oldest[0]);
    } catch {
      return false; // another tab writes it at this moment
    }
    this.notice(`\`${oldest[1].model}\` was removed from the page's storage to make room`);
    return true;
  }

  /**
   * @param {FileEntry} entry
   * @param {string} model
   */
  async note(entry, model) {
    try {
      await locked(LOCK, undefined, async () => {
        const names = new Set(await this.place.names());
        const known = Object.entries(await this.index()).filter(([name]) => names.has(name));
        const index = { ...Object.fromEntries(known), [entry.sha256]: { size: entry.size, used: Date.now(), model } };
        await this.place.write(INDEX, 0, new TextEncoder().encode(JSON.stringify(index)));
      });
    } catch (error) {
      this.notice(`The list of kept models could not be written: ${said(error)}`);
    }
  }

  /** @returns {Promise<Record<string, Known>>} */
  async index() {
    try {
      return JSON.parse(new TextDecoder().decode((await this.place.read(INDEX)) ?? new TextEncoder().encode("{}")));
    } catch {
      return {}; // it was cut short while it was written: the files are still found by their hashes
    }
  }

  /** @param {string} text */
  notice(text) {
    this.notices.push(text);
    console.warn(`edge-infer: ${text}`);
  }
}

/** @returns {Promise<Store>} The store of this origin. */
export async function openStore() {
  const { place, notice } = await openPlace();
  return new Store(place, notice);
}

/** @param {unknown} error */
function said(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {Uint8Array<ArrayBuffer>} [target]
 * @returns {Uint8Array<ArrayBuffer>} The bytes, in the target where there is one.
 */
function placed(bytes, target) {
  if (!target || bytes.buffer === target.buffer) return bytes;
  target.set(bytes);
  return target;
}
