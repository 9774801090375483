/** Decide which of two signed revisions a device takes in a staged roll-out; see `edge_infer.sync.stage`. */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { isCount, isDigest } from "./revision.js";

const WHOLE = 10_000;

/** @typedef {{sha256: string, length?: number, stage: number, isFallback?: boolean}} Offer A revision document, its length where that is
 *   signed, the number of the roll-out's step that offers it, 0 for none, and whether it is the one for all others. */

/**
 * @param {any} target The model's entry in the signed targets.
 * @param {string} model
 * @param {string} device The device's name.
 * @param {number} sequence The highest sequence that it took.
 * @returns {Promise<Offer>} What it shall take.
 * @throws {EdgeInferError} `not_released`: none is meant for it yet; `signature_error`: the entry is malformed.
 */
export async function offered(target, model, device, sequence) {
  const { custom = {}, hashes, length } = target;
  const malformed = () => new EdgeInferError(`The entry of \`${model}\` in the targets is malformed`, "signature_error", { hint: "publish the model again" });
  if (!isCount(length) || !isDigest(hashes?.sha256) || custom === null || typeof custom !== "object" || Array.isArray(custom)) throw malformed();
  const stage = custom.stage ?? null;
  const whole = { sha256: hashes.sha256, length, stage: stage?.number ?? 0 };
  if (stage === null) return whole;
  const { number, share, fallback = "" } = stage;
  if (![number, share, custom.sequence].every(isCount) || !(fallback === "" || isDigest(fallback))) throw malformed();
  if (sequence >= custom.sequence) return whole;
  const digest = await sha256(new TextEncoder().encode(`${model}/${custom.sequence}/${device}`));
  const place = Math.floor((Number.parseInt(digest.slice(0, 8), 16) * WHOLE) / 2 ** 32);
  if (place < share) return whole;
  if (fallback) return { sha256: fallback, stage: 0, isFallback: true };
  throw notReleased(model);
}

/** @param {string} model @param {string} [word] What kind of version is waited for. */
export function notReleased(model, word = "") {
  return new EdgeInferError(`No ${word}version of \`${model}\` is released to this device yet`, "not_released", {
    hint: "on the publisher: edge-infer store stage STORE MODEL all; in this browser, clearModels() draws another place",
  });
}
