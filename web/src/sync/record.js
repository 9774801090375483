/**
 * Keep the record of the active version. A file of a page's storage cannot be replaced at once, so there are two: the newer
 * whole one counts, and the other is written next.
 */

import { sha256 } from "../fetch/sha256.js";
import { NO_FLOOR } from "./trust.js";

/** @typedef {import("./pack.js").File} File */
/** @typedef {{version: string, sequence: number, files: File[], key?: string}} Installed Encrypted for the key of that name, where it has one. */
/**
 * @typedef {object} Record What the page keeps of one model of one store.
 * @property {string} device A random name, which a staged roll-out decides by.
 * @property {string} root The root metadata that is trusted; empty before the first pull.
 * @property {{[role: string]: string}} metadata The other metadata that was verified, by role; records of before have none.
 * @property {Installed | null} active
 * @property {Installed | null} previous
 * @property {import("./trust.js").Floor} floor
 * @property {string} trial The bundle revision whose trial has begun and not ended, else empty.
 * @property {number} trials How often it has begun.
 * @property {string[]} refused Bundle revisions that failed their trial.
 */

const FORMAT = 1;
const PREFIX = "record-";

/** @param {Record} record @returns {string[]} The sha256 of all files of its versions. */
export function filesOf({ active, previous }) {
  return [active, previous].flatMap((one) => one?.files.map((file) => file.sha256) ?? []);
}

/** Where the record of a model lies. */
export class RecordSlots {
  /**
   * @param {import("../cache/place.js").Place} place
   * @param {string} name
   */
  constructor(place, name) {
    this.place = place;
    this.names = [`${name}-0`, `${name}-1`];
    this.count = 0;
    /** The name of a page that has no record yet. */
    this.device = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    /** What there was no room for: it counts until the page is closed. @type {Record | null} */
    this.held = null;
  }

  /** @param {import("../cache/place.js").Place} place @param {string} store @param {string} model */
  static async of(place, store, model) {
    const name = await sha256(new TextEncoder().encode(`${store}/${model}`));
    return new RecordSlots(place, `${PREFIX}${name.slice(0, 32)}`);
  }

  /** @returns {Promise<string[]>} The sha256 of the files that the records of other models and stores name. */
  async filesOfOthers() {
    const others = (await this.place.names()).filter((name) => name.startsWith(PREFIX) && !this.names.includes(name));
    return (await Promise.all(others.map((name) => this.slot(name)))).flatMap((one) => (one ? filesOf(one.record) : []));
  }

  /** @returns {Promise<Record>} */
  async read() {
    if (this.held) return this.held;
    const found = await Promise.all(this.names.map((name) => this.slot(name)));
    const [newest] = found.filter((one) => one !== null).toSorted((one, other) => other.count - one.count);
    this.count = newest?.count ?? 0;
    return (
      newest?.record ?? {
        device: this.device,
        root: "",
        metadata: {},
        active: null,
        previous: null,
        floor: NO_FLOOR,
        trial: "",
        trials: 0,
        refused: [],
      }
    );
  }

  /** @param {Record} record */
  async write(record) {
    const count = this.count + 1;
    const body = JSON.stringify({ format: FORMAT, count, record });
    const text = JSON.stringify({ sha256: await sha256(new TextEncoder().encode(body)), body });
    try {
      await this.place.write(this.names[count % 2], 0, new TextEncoder().encode(text));
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "QuotaExceededError")) throw error;
      this.held = record;
      return;
    }
    this.held = null;
    this.count = count;
  }

  /**
   * @param {string} name
   * @returns {Promise<{count: number, record: Record} | null>} Null where it is missing, was cut, or is of another format.
   */
  async slot(name) {
    try {
      const bytes = await this.place.read(name);
      if (!bytes) return null;
      const { sha256: digest, body } = JSON.parse(new TextDecoder().decode(bytes));
      if (digest !== (await sha256(new TextEncoder().encode(body)))) return null;
      const { format, count, record } = JSON.parse(body);
      return format === FORMAT ? { count, record: { ...record, metadata: record.metadata ?? {}, floor: { ...NO_FLOOR, ...record.floor } } } : null;
    } catch {
      return null;
    }
  }
}
