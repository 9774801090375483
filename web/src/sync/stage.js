/** A staged roll-out: which of two signed revisions a device takes; `edge_infer.sync.stage`. */

import { InferError } from "../errors.js";
import { sha256 } from "../sha256.js";

const WHOLE = 10_000;

/**
 * @param {any} target The model's entry in the signed targets.
 * @param {string} model
 * @param {string} device The device's name.
 * @param {number} sequence The highest sequence that it took.
 * @returns {Promise<{sha256: string, length: number, stage: number, isFallback?: boolean}>} The revision document that it
 *   shall take, the number of the roll-out's step that offers it, 0 for none, and whether it is the one for all others.
 * @throws {InferError} `not_released`: none is meant for it yet.
 */
export async function offered(target, model, device, sequence) {
  const { custom = {}, hashes, length } = target;
  const { stage } = custom;
  const whole = { sha256: hashes?.sha256, length, stage: Number(stage?.number ?? 0) };
  if (!stage || sequence >= custom.sequence) return whole;
  const digest = await sha256(new TextEncoder().encode(`${model}/${custom.sequence}/${device}`));
  const place = Math.floor((Number.parseInt(digest.slice(0, 8), 16) * WHOLE) / 2 ** 32);
  if (place < stage.share) return whole;
  if (typeof stage.fallback === "string") return { sha256: stage.fallback, length: Number.MAX_SAFE_INTEGER, stage: 0, isFallback: true };
  throw notReleased(model);
}

/** @param {string} model @param {string} [word] What kind of version is waited for. */
export function notReleased(model, word = "") {
  return new InferError(`No ${word}version of \`${model}\` is released to this device yet`, "not_released", {
    hint: "on the publisher: edge-infer store stage STORE MODEL all",
  });
}
