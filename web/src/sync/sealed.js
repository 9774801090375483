/** Files that are encrypted in chunks by AES-256-GCM, as `edge_infer.bundle.sealed` describes them; by WebCrypto. */

import { EdgeInferError } from "../errors.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

export const CHUNK = 2 ** 18;
const MAGIC = "EISEAL01";
const HEAD = 16;
const [NONCE, TAG] = [12, 16];
const OVERHEAD = NONCE + TAG;
const KEY_BYTES = 32;

const utf8 = new TextEncoder();
const hex = (/** @type {Uint8Array} */ bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const unhex = (/** @type {string} */ digits) => Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** A key of which only the name is ever shown. */
export class Key {
  /** @type {CryptoKey} */
  #data;
  /** @type {CryptoKey} */
  #nonces;

  /** @param {string} name @param {CryptoKey} data @param {CryptoKey} nonces */
  constructor(name, data, nonces) {
    this.name = name;
    this.#data = data;
    this.#nonces = nonces;
  }

  /** @param {Bytes} secret */
  static async of(secret) {
    const { subtle } = crypto;
    const hmac = (/** @type {Bytes} */ raw) => subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const own = await hmac(secret);
    const part = async (/** @type {string} */ word) => new Uint8Array(await subtle.sign("HMAC", own, utf8.encode(`edge-infer seal 1 ${word}`)));
    const data = await subtle.importKey("raw", await part("data"), "AES-GCM", false, ["encrypt", "decrypt"]);
    return new Key(hex((await part("name")).subarray(0, 8)), data, await hmac(await part("nonce")));
  }

  /** @param {number} number @param {number} size @param {Bytes} clear */
  async sealChunk(number, size, clear) {
    const about = aboutOf(number, size);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", clear));
    const said = new Uint8Array(about.length + digest.length);
    said.set(about);
    said.set(digest, about.length);
    const nonce = new Uint8Array(await crypto.subtle.sign("HMAC", this.#nonces, said)).subarray(0, NONCE);
    const cipher = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce, additionalData: about }, this.#data, clear);
    return { nonce, cipher: new Uint8Array(cipher) };
  }

  /** @param {number} number @param {number} size @param {Bytes} sealed */
  async openChunk(number, size, sealed) {
    try {
      const how = { name: "AES-GCM", iv: sealed.subarray(0, NONCE), additionalData: aboutOf(number, size) };
      return new Uint8Array(await crypto.subtle.decrypt(how, this.#data, sealed.subarray(NONCE)));
    } catch (cause) {
      throw new EdgeInferError(`Chunk ${number} of encrypted weights does not open with the key ${this.name}: it was changed`, "integrity_error", {
        hint: "load it again: what is damaged is fetched anew",
        cause,
      });
    }
  }
}

/** The keys of a key file: each opens what it sealed. */
export class KeyRing {
  /** @param {readonly Key[]} keys */
  constructor(keys) {
    this.keys = keys;
  }

  /**
   * @param {string} [text] That of a key file.
   * @throws {EdgeInferError} `encrypted`: it is none.
   */
  static async of(text) {
    /** @type {Key[]} */
    const keys = [];
    for (const [i, line] of (text ?? "").split("\n").entries()) {
      const words = line.trim();
      if (!words || words.startsWith("#")) continue;
      if (!/^[0-9a-f]{64}$/i.test(words)) {
        throw new EdgeInferError(`Line ${i + 1} of \`key\` is no key: it has ${words.length} characters, expected ${2 * KEY_BYTES} hexadecimal digits`, "encrypted", {
          hint: "key: the text of a file that `edge-infer store keys encryption` made",
        });
      }
      keys.push(await Key.of(unhex(words)));
    }
    if (text !== undefined && keys.length === 0) throw new EdgeInferError("There is no key in `key`", "encrypted", { hint: "key: the text of a key file" });
    return new KeyRing(keys);
  }

  /** @param {string} name */
  has(name) {
    return this.keys.some((key) => key.name === name);
  }

  /**
   * @param {string} name
   * @param {string} what What it opens, in words.
   * @throws {EdgeInferError} `encrypted`: it is not among these.
   */
  get(name, what) {
    const found = this.keys.find((key) => key.name === name);
    if (found) return found;
    const given = this.keys.length ? `the keys here are ${this.keys.map((key) => key.name).join(", ")}` : "no key was given";
    throw new EdgeInferError(`${what} is encrypted for the key ${name}; ${given}`, "encrypted", {
      hint: 'load("edge+…", { key }), with the text of the file that the publisher has',
      details: { expected: name },
    });
  }
}

/** @param {number} size @returns {number} How many bytes a file of a size has when it is sealed. */
export function sealedSize(size) {
  return HEAD + size + OVERHEAD * Math.max(1, Math.ceil(size / CHUNK));
}

/** @param {number} size @returns {number} How many bytes a sealed file of a size has in clear; -1 where none has that size. */
export function clearSize(size) {
  const body = size - HEAD;
  const clear = body - OVERHEAD * Math.max(1, Math.ceil(body / (CHUNK + OVERHEAD)));
  return clear >= 0 && sealedSize(clear) === size ? clear : -1;
}

/**
 * @param {Bytes} clear
 * @param {Key} key
 * @returns {Promise<Bytes>}
 */
export async function seal(clear, key) {
  const made = new Uint8Array(sealedSize(clear.length));
  made.set(utf8.encode(MAGIC));
  made.set(unhex(key.name), MAGIC.length);
  let at = HEAD;
  for (let number = 0; number * CHUNK < clear.length || number === 0; number++) {
    const { nonce, cipher } = await key.sealChunk(number, clear.length, clear.subarray(number * CHUNK, (number + 1) * CHUNK));
    made.set(nonce, at);
    made.set(cipher, at + NONCE);
    at += NONCE + cipher.length;
  }
  return made;
}

/**
 * @param {Bytes} sealed
 * @param {KeyRing} ring
 * @param {string} name What to call it in errors.
 * @returns {Promise<Bytes>}
 * @throws {EdgeInferError} `encrypted`: none of the keys is its key; `integrity_error`: it is no sealed file, or was changed.
 */
export async function opened(sealed, ring, name) {
  const size = clearSize(sealed.length);
  if (size < 0 || new TextDecoder("latin1").decode(sealed.subarray(0, MAGIC.length)) !== MAGIC) {
    throw new EdgeInferError(`\`${name}\` is no encrypted file, or was cut`, "integrity_error", { hint: "publish the model again" });
  }
  const key = ring.get(hex(sealed.subarray(MAGIC.length, HEAD)), `\`${name}\``);
  const made = new Uint8Array(size);
  for (let number = 0; number * CHUNK < size || number === 0; number++) {
    const start = HEAD + number * (CHUNK + OVERHEAD);
    made.set(await key.openChunk(number, size, sealed.subarray(start, start + CHUNK + OVERHEAD)), number * CHUNK);
  }
  return made;
}

/** @param {number} number @param {number} size */
function aboutOf(number, size) {
  const about = new DataView(new ArrayBuffer(16));
  about.setBigUint64(0, BigInt(number), true);
  about.setBigUint64(8, BigInt(size), true);
  return new Uint8Array(about.buffer);
}
