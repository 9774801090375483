/** Check the signatures of metadata with the browser's WebCrypto: keys of ed25519, ecdsa and rsa. */

import { EdgeInferError } from "../errors.js";
import { canonical } from "./canonical.js";

/** @typedef {{keyids: string[], threshold: number}} Role */
/** @typedef {{keytype: string, scheme: string, keyval: {public: string}}} Key */
/** @typedef {{signed: any, signatures: {keyid: string, sig: string}[]}} Metadata */

const NO_SIGNATURES = "a page of the server can still load the plain bundle: load(url, { fallback: \"/models/NAME\" })";
const ECDSA = /** @type {Record<string, {curve: string, hash: string, bytes: number}>} */ ({
  "ecdsa-sha2-nistp256": { curve: "P-256", hash: "SHA-256", bytes: 32 },
  "ecdsa-sha2-nistp384": { curve: "P-384", hash: "SHA-384", bytes: 48 },
});
const RSA = /^(rsassa-pss|rsa-pkcs1v15)-sha(256|384|512)$/;
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
 * @throws {EdgeInferError} `unsupported`: signatures cannot be checked here.
 */
export async function requireSignatures() {
  const why = await whyNot();
  if (why) throw new EdgeInferError(`Signed weights cannot be checked: ${why}`, "unsupported", { hint: NO_SIGNATURES });
}

/**
 * Count the keys of a role that signed metadata, and compare with its threshold.
 *
 * @param {Metadata} metadata
 * @param {Record<string, Key>} keys
 * @param {Role} role
 * @param {string} name The role, for the message.
 * @throws {EdgeInferError} `signature_error`: fewer than the threshold signed.
 */
export async function requireSigned(metadata, keys, role, name) {
  const bytes = new TextEncoder().encode(canonical(metadata.signed));
  const signed = new Set();
  for (const { keyid, sig } of metadata.signatures) {
    const counts = role.keyids.includes(keyid) && !signed.has(keyid) && Object.hasOwn(keys, keyid);
    if (counts && (await isGood(keys[keyid], sig, bytes))) signed.add(keyid);
  }
  if (!(role.threshold >= 1) || signed.size < role.threshold) {
    throw new EdgeInferError(
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
  const signature = unhex(sig);
  const checked = key.keytype === "ed25519" ? ed25519(key, signature) : key.keytype === "rsa" ? rsa(key, signature) : ecdsa(key, signature);
  if (!checked) return false;
  const { format, data, named, how, raw } = checked;
  try {
    const imported = await crypto.subtle.importKey(format, data, named, false, ["verify"]);
    return await crypto.subtle.verify(how, imported, raw, bytes);
  } catch (error) {
    // A key that is not one, or a signature of another form, does not count; the others may.
    if (error instanceof DOMException) return false;
    throw error;
  }
}

/**
 * @typedef {object} Check What WebCrypto is asked.
 * @property {"raw" | "spki"} format
 * @property {Uint8Array<ArrayBuffer>} data The key.
 * @property {string | EcKeyImportParams | RsaHashedImportParams} named
 * @property {string | EcdsaParams | RsaPssParams} how
 * @property {Uint8Array<ArrayBuffer>} raw The signature.
 */

/** @param {Key} key @param {Uint8Array<ArrayBuffer>} raw @returns {Check | null} */
function ed25519({ scheme, keyval }, raw) {
  const data = unhex(keyval.public);
  if (scheme !== "ed25519" || data.length !== 32 || raw.length !== 64) return null;
  return { format: "raw", data, named: "Ed25519", how: "Ed25519", raw };
}

/** @param {Key} key @param {Uint8Array<ArrayBuffer>} der @returns {Check | null} */
function ecdsa({ keytype, scheme, keyval }, der) {
  const known = (keytype === "ecdsa" || keytype === scheme) && Object.hasOwn(ECDSA, scheme) ? ECDSA[scheme] : undefined;
  const raw = known && twoNumbers(der, known.bytes);
  if (!known || !raw) return null;
  const { curve, hash } = known;
  return { format: "spki", data: unpem(keyval.public), named: { name: "ECDSA", namedCurve: curve }, how: { name: "ECDSA", hash }, raw };
}

/** @param {Key} key @param {Uint8Array<ArrayBuffer>} raw @returns {Check | null} */
function rsa({ scheme, keyval }, raw) {
  const [, padding, bits] = RSA.exec(scheme) ?? [];
  if (!padding) return null;
  const name = padding === "rsassa-pss" ? "RSA-PSS" : "RSASSA-PKCS1-v1_5";
  // Salts are as long as the digest, as securesystemslib makes them.
  const how = name === "RSA-PSS" ? { name, saltLength: Number(bits) / 8 } : name;
  return { format: "spki", data: unpem(keyval.public), named: { name, hash: `SHA-${bits}` }, how, raw };
}

/**
 * Turn an ECDSA signature from DER (a sequence of two integers, RFC 3279, 2.2.3) into the form of WebCrypto.
 *
 * @param {Uint8Array<ArrayBuffer>} der
 * @param {number} bytes How many each number has.
 * @returns {Uint8Array<ArrayBuffer> | null} Null where it is malformed.
 */
function twoNumbers(der, bytes) {
  const raw = new Uint8Array(2 * bytes);
  if (der[0] !== 0x30 || der[1] !== der.length - 2 || der.length > 127) return null;
  let at = 2;
  for (const end of [bytes, 2 * bytes]) {
    const length = der[at + 1];
    if (der[at] !== 2 || !(length >= 1) || at + 2 + length > der.length) return null;
    let number = der.subarray(at + 2, at + 2 + length);
    if (number[0] > 0x7f) return null; // it is negative
    while (number.length > 1 && number[0] === 0) number = number.subarray(1);
    if (number.length > bytes) return null;
    raw.set(number, end - number.length);
    at += 2 + length;
  }
  return at === der.length ? raw : null;
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} The bytes of a key in PEM; empty where it is not in PEM. */
function unpem(text) {
  const [, body] = /^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/.exec(text) ?? [];
  try {
    return Uint8Array.from(atob((body ?? "").replace(/\s/g, "")), (letter) => letter.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} Empty where it is not hexadecimal. */
function unhex(text) {
  if (typeof text !== "string" || !/^([0-9a-f]{2})*$/.test(text)) return new Uint8Array();
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => Number.parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
