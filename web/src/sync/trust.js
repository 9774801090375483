/**
 * Check that a store's metadata is signed by its publishers: the client workflow of The Update Framework 1.0, section 5,
 * over the four roles of a store. The newest versions seen are a floor, kept in the page's activation record.
 */

import { InferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { parseRevision } from "./revision.js";
import { requireSignatures, requireSigned } from "./signatures.js";
import { notReleased, offered } from "./stage.js";

/** @typedef {import("./signatures.js").Metadata} Metadata */
/** @typedef {import("./revision.js").Revision} Revision */
/**
 * @typedef {object} Floor What was seen before: versions, the model's sequence, the last signed time in s since 1970, and
 *   whose timestamps and snapshots they were.
 * @property {number} root
 * @property {number} timestamp
 * @property {number} snapshot
 * @property {number} targets
 * @property {number} sequence
 * @property {number} time_s
 * @property {string} online
 */
/** @typedef {(path: string, limit: number) => Promise<Uint8Array<ArrayBuffer> | null>} Read Gives a file of the store; null where it has none. */
/** @typedef {{revision: Revision, floor: Floor, root: string, stage: number}} Proven `stage` is the number of the roll-out's step, 0 for none. */

/** @type {Floor} */
export const NO_FLOOR = { root: 0, timestamp: 0, snapshot: 0, targets: 0, sequence: 0, time_s: 0, online: "" };
const LIMITS = { root: 512_000, timestamp: 16_384, snapshot: 2_000_000, targets: 5_000_000 };
const MAX_ROTATIONS = 256;
const MAX_REVISION_BYTES = 16 * 2 ** 20;

/**
 * Return the revision of a model that the store offers this page now, proven.
 *
 * @param {Read} read
 * @param {string} model
 * @param {string} root The root metadata that is trusted, as text.
 * @param {Floor} floor What was seen before, with the sequence that the page runs, 0 for none: it never goes below it.
 * @param {{device?: string, now_s?: number}} [page] The device, by which a staged roll-out decides, and the time.
 * @returns {Promise<Proven>}
 * @throws {InferError} `signature_error`, `metadata_expired`, `rollback_refused`, `fetch_error` or `unsupported`.
 */
export async function newest(read, model, root, floor, page = {}) {
  await requireSignatures();
  try {
    return await proven(read, model, root, floor, page);
  } catch (error) {
    // Metadata of another form than this code goes through, or nested too deeply.
    if (error instanceof TypeError || error instanceof RangeError) throw refused(`it is malformed: ${error.message}`);
    throw error;
  }
}

/**
 * @param {Read} read
 * @param {string} model
 * @param {string} root
 * @param {Floor} floor
 * @param {{device?: string, now_s?: number}} page
 * @returns {Promise<Proven>}
 */
async function proven(read, model, root, floor, { device = "", now_s = Date.now() / 1000 }) {
  const clock = Math.max(now_s, floor.time_s);
  const { text, signed } = await newestRoot(read, root);
  requireAtLeast("root", signed.version, floor.root);
  requireFresh("root", signed, clock);
  const online = [...signed.roles.timestamp.keyids, ...signed.roles.snapshot.keyids].toSorted().join(" ");
  // Whoever held keys that were replaced since may have counted up to anything (specification, 5.3.11).
  const least = floor.online === online || floor.online === "" ? floor : { ...floor, timestamp: 0, snapshot: 0 };
  const role = async (/** @type {"timestamp" | "snapshot" | "targets"} */ name, /** @type {string} */ path, /** @type {any} */ promised) => {
    const bytes = await read(`tuf/${path}`, LIMITS[name]);
    if (!bytes) throw missing(`tuf/${path}`);
    await requirePromised(name, bytes, promised);
    const metadata = parse(bytes, name);
    await requireSigned(metadata, signed.keys, signed.roles[name], name);
    if (promised && metadata.signed.version !== promised.version) throw refused(`${name} has version ${metadata.signed.version}, expected ${promised.version}`);
    requireAtLeast(name, metadata.signed.version, least[name]);
    requireFresh(name, metadata.signed, clock);
    return metadata.signed;
  };
  const timestamp = await role("timestamp", "timestamp.json", undefined);
  const of = (/** @type {any} */ document, /** @type {string} */ name) => {
    const entry = document.meta?.[name];
    if (!Number.isSafeInteger(entry?.version)) throw refused(`no version of ${name} is named`);
    return entry;
  };
  const snapshotMeta = of(timestamp, "snapshot.json");
  const snapshot = await role("snapshot", `${snapshotMeta.version}.snapshot.json`, snapshotMeta);
  const targetsMeta = of(snapshot, "targets.json");
  const targets = await role("targets", `${targetsMeta.version}.targets.json`, targetsMeta);
  const target = Object.hasOwn(targets.targets, model) ? targets.targets[model] : undefined;
  if (!target) throw new InferError(`The store has no model \`${model}\``, "fetch_error", { details: { status: 404 } });
  const offer = await offered(target, model, device, floor.sequence);
  const revision = await revisionOf(read, model, offer);
  // It took a version that was never for all, and the next one is not its turn.
  if (offer.isFallback && revision.sequence < floor.sequence) throw notReleased(model, "newer ");
  requireAtLeast("sequence", revision.sequence, floor.sequence);
  const bound = Math.max(floor.time_s, revision.created);
  for (const one of [signed, timestamp, snapshot, targets]) requireFresh(one._type, one, bound);
  const seen = { root: signed.version, timestamp: timestamp.version, snapshot: snapshot.version, targets: targets.version };
  return { revision, root: text, stage: offer.stage, floor: { ...seen, sequence: revision.sequence, time_s: bound, online } };
}

/**
 * Follow the chain of roots: each is signed by the keys of the one before and by its own.
 *
 * @param {Read} read
 * @param {string} trusted
 * @returns {Promise<{text: string, signed: any}>}
 */
async function newestRoot(read, trusted) {
  let text = trusted;
  let { signed } = parse(new TextEncoder().encode(trusted), "root");
  for (let i = 0; i < MAX_ROTATIONS; i++) {
    const bytes = await read(`tuf/${signed.version + 1}.root.json`, LIMITS.root);
    if (!bytes) return { text, signed };
    const next = parse(bytes, "root");
    await requireSigned(next, signed.keys, signed.roles.root, "root");
    await requireSigned(next, next.signed.keys, next.signed.roles.root, "root");
    if (next.signed.version !== signed.version + 1) throw refused(`root has version ${next.signed.version}, expected ${signed.version + 1}`);
    text = new TextDecoder().decode(bytes);
    signed = next.signed;
  }
  throw refused(`the keys were replaced more than ${MAX_ROTATIONS} times`);
}

/**
 * @param {Read} read
 * @param {string} model
 * @param {import("./stage.js").Offer} offer
 */
async function revisionOf(read, model, { sha256: digest, length = MAX_REVISION_BYTES, isFallback }) {
  const path = `revisions/${digest}.json`;
  const bytes = await read(path, Math.min(length, MAX_REVISION_BYTES));
  if (!bytes) throw missing(path);
  if ((!isFallback && bytes.length !== length) || (await sha256(bytes)) !== digest) throw refused(`the revision of \`${model}\` is not the one that was signed`);
  const revision = parseRevision(bytes);
  if (revision.model !== model) throw refused(`it gives model \`${revision.model}\` for \`${model}\``);
  return revision;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} type
 * @returns {Metadata}
 */
function parse(bytes, type) {
  try {
    const metadata = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    const { signed, signatures } = metadata;
    const isRight = signed._type === type && /^1\.0(\.|$)/.test(signed.spec_version) && Number.isSafeInteger(signed.version);
    if (!isRight || signed.version < 1 || !Array.isArray(signatures)) throw new TypeError("it is another document");
    if (type === "root" && !["root", "timestamp", "snapshot", "targets"].every((name) => Array.isArray(signed.roles[name].keyids))) {
      throw new TypeError("it lacks a role");
    }
    return metadata;
  } catch (error) {
    throw refused(`no ${type} metadata came: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes @param {{length?: number, hashes?: {sha256?: string}} | undefined} promised */
async function requirePromised(name, bytes, promised) {
  const digest = promised?.hashes?.sha256;
  if ((promised?.length !== undefined && promised.length !== bytes.length) || (digest !== undefined && digest !== (await sha256(bytes)))) {
    throw refused(`${name} is not the one that is named`);
  }
}

/** @param {string} name @param {{expires: string}} signed @param {number} clock */
function requireFresh(name, signed, clock) {
  const expires = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(signed.expires) ? Date.parse(signed.expires) / 1000 : Number.NaN;
  if (expires > clock) return;
  throw new InferError(`The store's ${name} metadata has expired: ${signed.expires}`, "metadata_expired", {
    hint: "on the publisher: edge-infer store refresh STORE",
  });
}

/** @param {string} name @param {number} got @param {number} least */
function requireAtLeast(name, got, least) {
  if (got >= least) return;
  throw new InferError(`The store offers ${name} ${got}, expected at least ${least}: that was seen already`, "rollback_refused", {
    hint: "the server holds an old copy, or somebody replays one",
    details: { expected: least, got },
  });
}

/** @param {string} path */
function missing(path) {
  return new InferError(`The store has no \`${path}\``, "fetch_error", { hint: "edge-infer publish BUNDLE STORE", details: { status: 404 } });
}

/** @param {string} why */
function refused(why) {
  return new InferError(`The store's metadata is refused: ${why}`, "signature_error", { hint: "is this the publisher whose root you trust?" });
}
