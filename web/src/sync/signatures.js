/** Check Ed25519 signatures over metadata with the browser's WebCrypto. */

import { InferError } from "../errors.js";
import { canonical } from "./canonical.js";

/** @typedef {{keyids: string[], threshold: number}} Role */
/** @typedef {{keytype: string, scheme: string, keyval: {public: string}}} Key */
/** @typedef {{signed: any, signatures: {keyid: string, sig: string}[]}} Metadata */

const NO_SIGNATURES = "a page of the server can still load the plain bundle: load(url, { fallback: \"/models/NAME\" })";
/** @type {Promise<string> | undefined} */
let missing;

/**
 * Tell why signatures cannot be checked here.
 *
 * @returns {Promise<string>} Empty where they can.
 */
export function whyNot() {
  missing ??= probe();
  return missing;
}

async function probe() {
  if (!globalThis.crypto?.subtle) return "the page is not in a secure context (https or localhost), so there is no WebCrypto";
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(32), "Ed25519", false, ["verify"]);
    return "";
  } catch {
    return "this browser's WebCrypto has no Ed25519 (Chrome 137, Firefox 129 and Safari 17 have it)";
  }
}

/**
 * @throws {InferError} `unsupported`: signatures cannot be checked here.
 */
export async function requireSignatures() {
  const why = await whyNot();
  if (why) throw new InferError(`Signed weights cannot be checked: ${why}`, "unsupported", { hint: NO_SIGNATURES });
}

/**
 * Count the keys of a role that signed metadata, and compare with its threshold.
 *
 * @param {Metadata} metadata
 * @param {Record<string, Key>} keys
 * @param {Role} role
 * @param {string} name The role, for the message.
 * @throws {InferError} `signature_error`: fewer than the threshold signed.
 */
export async function requireSigned(metadata, keys, role, name) {
  const bytes = new TextEncoder().encode(canonical(metadata.signed));
  const signed = new Set();
  for (const { keyid, sig } of metadata.signatures) {
    const key = role.keyids.includes(keyid) && !signed.has(keyid) ? keys[keyid] : undefined;
    if (key && (await isGood(key, sig, bytes))) signed.add(keyid);
  }
  if (!(role.threshold >= 1) || signed.size < role.threshold) {
    throw new InferError(
      `The store's ${name} metadata is signed by ${signed.size} of the keys that count, expected ${role.threshold}`,
      "signature_error",
      { hint: "is this the publisher whose root you trust?" },
    );
  }
}

/**
 * @param {Key} key
 * @param {string} sig
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
async function isGood(key, sig, bytes) {
  if (key.keytype !== "ed25519" || key.scheme !== "ed25519") return false;
  const [raw, signature] = [unhex(key.keyval.public), unhex(sig)];
  if (raw.length !== 32 || signature.length !== 64) return false;
  const imported = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", imported, signature, bytes);
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} Empty where it is not hexadecimal. */
function unhex(text) {
  if (typeof text !== "string" || !/^([0-9a-f]{2})*$/.test(text)) return new Uint8Array();
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => Number.parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
