/**
 * Bring the metadata of a store up to date and search it: the client workflow of The Update Framework 1.0, section 5. What
 * was verified is kept at once, role by role, so that a server that fails in the middle can take nothing back.
 */

import { EdgeInferError } from "../errors.js";
import { checked, delegatedFor } from "./delegations.js";
import { requireSigned } from "./signatures.js";

/** @typedef {import("./signatures.js").Metadata} Metadata */
/** @typedef {import("./signatures.js").Role} Role */
/** @typedef {import("./signatures.js").Key} Key */
/** @typedef {(path: string, limit: number) => Promise<Uint8Array<ArrayBuffer> | null>} Read Gives a file of the store; null where it has none. */
/**
 * @typedef {object} Kept Where verified metadata is kept, by role.
 * @property {(role: string) => Promise<string | undefined>} read
 * @property {(role: string, text: string) => Promise<void>} write
 */
/** @typedef {{root: number, timestamp: number, snapshot: number, targets: number}} Versions */
/** @typedef {{version: number, length?: number, hashes?: Record<string, string>}} Promised */
/** @typedef {{role: Role, keys: Record<string, Key>}} Delegator Who may sign. */

const LIMITS = { root: 512_000, timestamp: 16_384, snapshot: 2_000_000, targets: 5_000_000 };
const MAX_ROTATIONS = 256;
const MAX_DELEGATIONS = 32;
const HASHES = /** @type {Record<string, string>} */ ({ sha256: "SHA-256", sha384: "SHA-384", sha512: "SHA-512" });

/** The metadata of one store. */
export class TrustedMetadata {
  /**
   * @param {Read} read Gives the files of its metadata.
   * @param {Kept} kept
   * @param {string} first The root that is trusted where none is kept.
   * @param {number} clock The time in s since 1970.
   */
  constructor(read, kept, first, clock) {
    this.fetch = read;
    this.kept = kept;
    this.first = first;
    this.clock = clock;
    /** The newest root, as text. */
    this.rootText = "";
    /** All that was verified and is in use. @type {any[]} */
    this.used = [];
  }

  /**
   * Fetch and verify the four roles of the top.
   *
   * @param {(root: any) => Versions} floor The least versions, for the root that was found.
   * @throws {EdgeInferError} `signature_error`, `metadata_expired`, `rollback_refused` or `fetch_error`.
   */
  async refresh(floor) {
    this.root = await this.newestRoot();
    const least = floor(this.root);
    requireAtLeast("root", this.root.version, least.root);
    requireFresh("root", this.root, this.clock);
    const timestamp = await this.newestTimestamp(least);
    const snapshot = await this.newestSnapshot(named(timestamp, "snapshot.json"), least);
    this.snapshot = snapshot;
    this.used = [this.root, timestamp, snapshot];
    this.targets = await this.targetsOf("targets", this.delegator("targets"));
    return { root: this.root.version, timestamp: timestamp.version, snapshot: snapshot.version, targets: this.targets.version };
  }

  /**
   * Search the targets for a path, depth first, in the order of the delegations (5.6.7).
   *
   * @param {string} path
   * @returns {Promise<any>} Its entry; undefined where nobody has it who may.
   */
  async target(path) {
    /** @type {{name: string, delegator: Delegator}[]} */
    let open = [{ name: "targets", delegator: this.delegator("targets") }];
    const visited = new Set();
    for (let next = open.pop(); next && visited.size <= MAX_DELEGATIONS; next = open.pop()) {
      if (visited.has(next.name)) continue;
      visited.add(next.name);
      // Verified for this delegator, also where another one delegates to the same role.
      const signed = next.name === "targets" ? this.targets : await this.targetsOf(next.name, next.delegator);
      const found = await delegatedFor(signed, path); // what is malformed is refused, needed or not
      if (Object.hasOwn(signed.targets, path)) return signed.targets[path];
      const last = found.findIndex(({ terminating }) => terminating);
      if (last >= 0) open = [];
      for (const { name, role, keys } of found.slice(0, last < 0 ? undefined : last + 1).toReversed()) open.push({ name, delegator: { role, keys } });
    }
    return undefined;
  }

  /** Follow the chain of roots: each is signed by the keys of the one before and by its own (5.3). */
  async newestRoot() {
    const known = await this.kept.read("root");
    this.rootText = known ?? this.first;
    let now = parse(new TextEncoder().encode(this.rootText), "root");
    await requireSigned(now, now.signed.keys, now.signed.roles.root, "root");
    for (let i = 0; i < MAX_ROTATIONS; i++) {
      const { version, keys, roles } = now.signed;
      const bytes = await this.fetch(`${version + 1}.root.json`, LIMITS.root);
      if (!bytes) return now.signed;
      const next = parse(bytes, "root");
      await requireSigned(next, keys, roles.root, "root");
      await requireSigned(next, next.signed.keys, next.signed.roles.root, "root");
      if (next.signed.version !== version + 1) throw refused(`root has version ${next.signed.version}, expected ${version + 1}`);
      now = next;
      this.rootText = text(bytes);
      // A root that was given is kept once a timestamp shows that it is this store's.
      if (known !== undefined) await this.keep("root", bytes);
    }
    throw refused(`the keys were replaced more than ${MAX_ROTATIONS} times`);
  }

  /** @param {Versions} least */
  async newestTimestamp(least) {
    const old = await this.old("timestamp", this.delegator("timestamp"));
    const bytes = await this.fetch("timestamp.json", LIMITS.timestamp);
    if (!bytes) throw missing("timestamp.json");
    const { signed } = await this.verified(bytes, "timestamp", this.delegator("timestamp"));
    const { version } = named(signed, "snapshot.json");
    requireAtLeast("timestamp", signed.version, Math.max(least.timestamp, old?.version ?? 0));
    if (old && signed.version === old.version) {
      // The content of a version never changes: the one that was seen first counts.
      requireFresh("timestamp", old, this.clock);
      return old;
    }
    requireAtLeast("snapshot", version, Math.max(least.snapshot, old ? named(old, "snapshot.json").version : 0));
    requireFresh("timestamp", signed, this.clock);
    if ((await this.kept.read("root")) === undefined) await this.kept.write("root", this.rootText);
    await this.keep("timestamp", bytes);
    return signed;
  }

  /** @param {Promised} promised @param {Versions} least */
  async newestSnapshot(promised, least) {
    const old = await this.old("snapshot", this.delegator("snapshot"));
    let [signed, bytes] = [old, /** @type {Uint8Array<ArrayBuffer> | null} */ (null)];
    if (old?.version !== promised.version) {
      bytes = await this.promised("snapshot", promised, LIMITS.snapshot);
      ({ signed } = await this.verified(bytes, "snapshot", this.delegator("snapshot")));
    }
    if (signed.version !== promised.version) throw refused(`snapshot has version ${signed.version}, expected ${promised.version}`);
    requireAtLeast("targets", named(signed, "targets.json").version, least.targets);
    for (const name of Object.keys(old?.meta ?? {})) {
      if (!Object.hasOwn(signed.meta, name)) throw refused(`the snapshot no longer names ${name}`);
      requireAtLeast(name.replace(/\.json$/, ""), named(signed, name).version, named(old, name).version);
    }
    requireFresh("snapshot", signed, this.clock);
    if (bytes) await this.keep("snapshot", bytes);
    return signed;
  }

  /**
   * @param {string} name A targets role, `targets` or a delegated one.
   * @param {Delegator} delegator
   */
  async targetsOf(name, delegator) {
    const promised = named(this.snapshot, `${name}.json`);
    let signed = await this.old(name, delegator, promised);
    if (!signed) {
      const bytes = await this.promised(name, promised, LIMITS.targets);
      ({ signed } = await this.verified(bytes, name, delegator));
      if (signed.version !== promised.version) throw refused(`${name} has version ${signed.version}, expected ${promised.version}`);
      requireFresh(name, signed, this.clock);
      await this.keep(name, bytes);
    }
    requireFresh(name, signed, this.clock);
    this.used.push(signed);
    return signed;
  }

  /** @param {"timestamp" | "snapshot" | "targets"} name @returns {Delegator} */
  delegator(name) {
    return { role: this.root.roles[name], keys: this.root.keys };
  }

  /**
   * Return what was kept of a role, where its keys still sign it: with replaced keys it does not count any more, however
   * high its version (5.3.11).
   *
   * @param {string} name
   * @param {Delegator} delegator
   * @param {Promised} [promised] What it must be.
   */
  async old(name, delegator, promised) {
    const text = await this.kept.read(name);
    if (text === undefined) return undefined;
    try {
      const bytes = new TextEncoder().encode(text);
      if (promised) await requirePromised(name, bytes, promised);
      const { signed } = await this.verified(bytes, name, delegator);
      return promised && signed.version !== promised.version ? undefined : signed;
    } catch (error) {
      if (error instanceof TypeError || (error instanceof EdgeInferError && error.code === "signature_error")) return undefined;
      throw error;
    }
  }

  /** @param {Uint8Array<ArrayBuffer>} bytes @param {string} name @param {Delegator} delegator */
  async verified(bytes, name, { role, keys }) {
    const metadata = parse(bytes, name);
    await requireSigned(metadata, keys, role, name);
    return metadata;
  }

  /** @param {string} name @param {Promised} promised @param {number} limit */
  async promised(name, promised, limit) {
    const file = `${quoted(name)}.json`;
    const path = this.root.consistent_snapshot === false ? file : `${promised.version}.${file}`;
    const bytes = await this.fetch(path, Math.min(limit, promised.length ?? limit));
    if (!bytes) throw missing(path);
    await requirePromised(name, bytes, promised);
    return bytes;
  }

  /** @param {string} role @param {Uint8Array} bytes */
  async keep(role, bytes) {
    await this.kept.write(role, text(bytes));
  }
}

/**
 * @param {string} name The name of a role.
 * @returns {string} As a file's name: all but letters, digits, `_`, `.`, `-` and `~` are escaped.
 */
export function quoted(name) {
  return encodeURIComponent(name).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}

/**
 * @param {string} name
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {{length?: number, hashes?: Record<string, string>}} promised
 * @throws {EdgeInferError} `signature_error`: they are others.
 */
export async function requirePromised(name, bytes, { length, hashes }) {
  if (length !== undefined && length !== bytes.length) throw refused(`${name} is not the one that is named: it has ${bytes.length} bytes, expected ${length}`);
  for (const [kind, digest] of Object.entries(hashes ?? {})) {
    if (!Object.hasOwn(HASHES, kind)) throw refused(`the hash \`${kind}\` of ${name} cannot be checked`);
    const found = new Uint8Array(await crypto.subtle.digest(HASHES[kind], bytes));
    if (Array.from(found, (byte) => byte.toString(16).padStart(2, "0")).join("") !== digest) throw refused(`${name} is not the one that is named`);
  }
}

/** @param {string} name @param {{expires: string}} signed @param {number} clock In s since 1970. */
export function requireFresh(name, signed, clock) {
  const expires = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(signed.expires) ? Date.parse(signed.expires) / 1000 : Number.NaN;
  if (expires > clock) return;
  throw new EdgeInferError(`The store's ${name} metadata has expired: ${signed.expires}`, "metadata_expired", {
    hint: "on the publisher: edge-infer store refresh STORE",
  });
}

/** @param {string} name @param {number} got @param {number} least */
export function requireAtLeast(name, got, least) {
  if (got >= least) return;
  throw new EdgeInferError(`The store offers ${name} ${got}, expected at least ${least}: that was seen already`, "rollback_refused", {
    hint: "the server holds an old copy, or somebody replays one",
    details: { expected: least, got },
  });
}

/** @param {any} signed @param {string} name @returns {Promised} What a timestamp or a snapshot says of a file. */
function named(signed, name) {
  const entry = Object.hasOwn(signed.meta, name) ? signed.meta[name] : undefined;
  if (!Number.isSafeInteger(entry?.version) || entry.version < 1) throw refused(`no version of ${name} is named`);
  const { length = 0, hashes = {} } = entry;
  if (!Number.isSafeInteger(length) || length < 0) throw refused(`${name} is named with the length ${length}`);
  if (!isObject(hashes)) throw refused(`${name} is named with malformed hashes`);
  return entry;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} name
 * @returns {Metadata}
 */
function parse(bytes, name) {
  const type = Object.hasOwn(LIMITS, name) ? name : "targets";
  try {
    const metadata = JSON.parse(text(bytes));
    const { signed, signatures } = metadata;
    const isRight = signed._type === type && /^1(\.\d+){1,2}$/.test(signed.spec_version) && Number.isSafeInteger(signed.version);
    if (!isRight || signed.version < 1 || !Array.isArray(signatures)) throw new TypeError("it is another document");
    if (new Set(signatures.map(({ keyid }) => keyid)).size !== signatures.length) throw new TypeError("a key signed it twice");
    if (type === "root") for (const one of ["root", "timestamp", "snapshot", "targets"]) checked(signed.roles[one]);
    const part = { root: "keys", timestamp: "meta", snapshot: "meta", targets: "targets" }[type] ?? "";
    if (!isObject(signed[part])) throw new TypeError(`it has no ${part}`);
    if (type === "root" && !["boolean", "undefined"].includes(typeof signed.consistent_snapshot)) throw new TypeError("`consistent_snapshot` is malformed");
    if (type === "targets" && !Object.values(signed.targets).every(isTarget)) throw new TypeError("a target is malformed");
    return metadata;
  } catch (error) {
    throw refused(`no ${name} metadata came: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {any} entry */
function isTarget(entry) {
  return isObject(entry) && Number.isSafeInteger(entry.length) && entry.length >= 0 && isObject(entry.hashes);
}

/** @param {Uint8Array} bytes */
function text(bytes) {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** @param {string} path */
function missing(path) {
  return new EdgeInferError(`The store has no \`tuf/${path}\``, "fetch_error", { hint: "edge-infer publish BUNDLE STORE", details: { status: 404 } });
}

/** @param {string} why */
export function refused(why) {
  return new EdgeInferError(`The store's metadata is refused: ${why}`, "signature_error", { hint: "is this the publisher whose root you trust?" });
}
