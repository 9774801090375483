/**
 * Find the version of a model that a store's publishers signed for this page. The newest versions seen are a floor, kept in
 * the page's activation record.
 */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { TrustedMetadata, refused, requireAtLeast, requireFresh } from "./metadata.js";
import { parseRevision } from "./revision.js";
import { requireSignatures } from "./signatures.js";
import { notReleased, offered } from "./stage.js";

/** @typedef {import("./metadata.js").Kept} Kept */
/** @typedef {import("./metadata.js").Read} Read */
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
/** @typedef {{revision: Revision, floor: Floor, root: string, stage: number}} Proven `stage` is the number of the roll-out's step, 0 for none. */

/** @type {Floor} */
export const NO_FLOOR = { root: 0, timestamp: 0, snapshot: 0, targets: 0, sequence: 0, time_s: 0, online: "" };
const MAX_REVISION_BYTES = 16 * 2 ** 20;

/**
 * Return the revision of a model that the store offers this page now, proven.
 *
 * @param {Read} read
 * @param {string} model
 * @param {string} root The root metadata that is trusted, as text.
 * @param {Floor} floor What was seen before, with the sequence that the page runs, 0 for none: it never goes below it.
 * @param {{device?: string, now_s?: number, kept?: Kept}} [page] The device, by which a staged roll-out decides, the time,
 *   and where verified metadata is kept.
 * @returns {Promise<Proven>}
 * @throws {EdgeInferError} `signature_error`, `metadata_expired`, `rollback_refused`, `fetch_error` or `unsupported`.
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
 * @param {{device?: string, now_s?: number, kept?: Kept}} page
 * @returns {Promise<Proven>}
 */
async function proven(read, model, root, floor, { device = "", now_s = Date.now() / 1000, kept = inMemory() }) {
  const metadata = new TrustedMetadata((path, limit) => read(`tuf/${path}`, limit), kept, root, Math.max(now_s, floor.time_s));
  let online = "";
  const seen = await metadata.refresh(({ roles }) => {
    online = [...roles.timestamp.keyids, ...roles.snapshot.keyids].toSorted().join(" ");
    // Whoever held keys that were replaced since may have counted up to anything (specification, 5.3.11).
    return floor.online === online || floor.online === "" ? floor : { ...floor, timestamp: 0, snapshot: 0, targets: 0 };
  });
  const target = await metadata.target(model);
  if (!target) throw new EdgeInferError(`The store has no model \`${model}\``, "fetch_error", { details: { status: 404 } });
  const offer = await offered(target, model, device, floor.sequence);
  const revision = await revisionOf(read, model, offer);
  // It took a version that was never for all, and the next one is not its turn.
  if (offer.isFallback && revision.sequence < floor.sequence) throw notReleased(model, "newer ");
  requireAtLeast("sequence", revision.sequence, floor.sequence);
  const bound = Math.max(floor.time_s, revision.created);
  for (const one of metadata.used) requireFresh(one._type, one, bound);
  return { revision, root: metadata.rootText, stage: offer.stage, floor: { ...seen, sequence: revision.sequence, time_s: bound, online } };
}

/** @returns {Kept} */
function inMemory() {
  /** @type {Map<string, string>} */
  const texts = new Map();
  return { read: async (role) => texts.get(role), write: async (role, text) => void texts.set(role, text) };
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

/** @param {string} path */
function missing(path) {
  return new EdgeInferError(`The store has no \`${path}\``, "fetch_error", { hint: "edge-infer publish BUNDLE STORE", details: { status: 404 } });
}
