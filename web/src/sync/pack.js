/** Unpack the files of a revision from one object, whole or as the difference to an older revision; see `edge_infer.sync.pack`. */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { clearSize, seal } from "./sealed.js";
import { CODECS, COPY, DIFFERENCES, decode } from "./transforms.js";
import { unzstd } from "./zstd.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {{path: string, size: number, sha256: string}} File */
/** @typedef {[codec: number, length: number, width: number, base: number, offset: number]} Step */
/** @typedef {[stored: number, length: number, base: number, codec: number]} Frame */
/** @typedef {{files: {path: string, steps: Step[]}[], bases: string[], frames: Frame[]}} Header */

const MAGIC = "EIPACK01";
const MAX_STEP = 4 * 2 ** 20;
const MAX_PREFIX = 8 * 2 ** 20;
const MAX_HEADER = 64 * 2 ** 20;

/**
 * Make the files of a pack.
 *
 * @param {Bytes} pack
 * @param {readonly File[]} files What the revision promises.
 * @param {(sha256: string) => Promise<Bytes>} base Gives the base file of a sha256.
 * @param {import("./zstd.js").Decoder} decoder
 * @param {import("./sealed.js").Key} [key] What the promised files are sealed by; in clear unless given.
 * @returns {Promise<Map<string, Bytes>>} By path; each has the sha256 that was promised.
 * @throws {EdgeInferError} `delta_error`: it is malformed, or does not give exactly these files.
 */
export async function unpack(pack, files, base, decoder, key) {
  const { header, start } = readHeader(pack, decoder);
  const promised = new Map(files.map((file) => [file.path, file]));
  if (header.files.length !== promised.size || header.files.some(({ path }) => !promised.has(path))) {
    throw malformed("holds other files than the revision");
  }
  const bases = [];
  for (const digest of header.bases) bases.push(await base(digest));
  const streams = new Streams(pack, start, header.frames, bases, decoder);
  /** @type {Map<string, Bytes>} */
  const made = new Map();
  for (const { path, steps } of header.files) {
    const file = /** @type {File} */ (promised.get(path));
    const size = key ? clearSize(file.size) : file.size;
    if (steps.reduce((sum, [, length]) => sum + length, 0) !== size) throw malformed(`makes another size of \`${path}\``);
    const clear = new Uint8Array(size);
    let at = 0;
    for (const step of steps) {
      clear.set(streams.make(step), at);
      at += step[1];
    }
    const bytes = key ? await seal(clear, key) : clear;
    const digest = await sha256(bytes);
    if (digest !== file.sha256) throw malformed(`does not give \`${path}\`: its sha256 is ${digest}`);
    made.set(path, bytes);
  }
  return made;
}

/**
 * @param {Bytes} pack
 * @param {import("./zstd.js").Decoder} decoder
 * @returns {{header: Header, start: number}}
 */
function readHeader(pack, decoder) {
  if (pack.length < 12 || new TextDecoder("latin1").decode(pack.subarray(0, 8)) !== MAGIC) {
    throw malformed("is of no version that this page reads", "update edge-infer in this page");
  }
  const start = 12 + new DataView(pack.buffer, pack.byteOffset).getUint32(8, true);
  if (start > pack.length) throw malformed("is cut short");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(unzstd(decoder, pack.subarray(12, start), MAX_HEADER)));
    check(header, pack.length - start);
  } catch (error) {
    if (error instanceof EdgeInferError) throw error;
    throw malformed(`has a malformed header: ${error}`);
  }
  return { header, start };
}

/**
 * @param {Header} header
 * @param {number} room
 */
function check({ files, bases, frames }, room) {
  let stored = 0;
  for (const [size, length, base, codec] of frames) {
    stored += size;
    const fits = size > 0 && length > 0 && length <= MAX_STEP && base >= -1 && base < bases.length;
    if (![size, length, base, codec].every(Number.isSafeInteger) || !fits || !CODECS.includes(codec)) {
      throw malformed(`has a frame out of bounds: ${[size, length, base, codec]}`);
    }
  }
  if (stored > room) throw malformed("is cut short");
  for (const { path, steps } of files) {
    if (typeof path !== "string") throw malformed("has a file without a path");
    for (const step of steps) {
      const [codec, length, , base, offset] = step;
      const needsBase = codec === COPY || DIFFERENCES.includes(codec);
      const fits = length > 0 && offset >= 0 && (codec === COPY || (CODECS.includes(codec) && length <= MAX_STEP));
      if (step.length !== 5 || !step.every(Number.isSafeInteger) || !fits || (needsBase && !(base >= 0 && base < bases.length))) {
        throw malformed(`has a step out of bounds: ${step}`);
      }
    }
  }
}

/** The streams of a pack, one for each codec, unpacked frame by frame as they are needed. */
class Streams {
  /**
   * @param {Bytes} pack
   * @param {number} start
   * @param {Frame[]} frames
   * @param {Bytes[]} bases
   * @param {import("./zstd.js").Decoder} decoder
   */
  constructor(pack, start, frames, bases, decoder) {
    this.pack = pack;
    this.bases = bases;
    this.decoder = decoder;
    /** @type {Map<number, {frames: {at: number, frame: Frame}[], next: number, buffer: Bytes, used: number}>} */
    this.streams = new Map(CODECS.map((codec) => [codec, { frames: [], next: 0, buffer: new Uint8Array(), used: 0 }]));
    let at = start;
    for (const frame of frames) {
      this.streams.get(frame[3])?.frames.push({ at, frame });
      at += frame[0];
    }
  }

  /**
   * @param {Step} step
   * @returns {Bytes}
   */
  make([codec, length, width, base, offset]) {
    if (codec === COPY) return this.base(base, offset, length);
    const old = DIFFERENCES.includes(codec) ? this.base(base, offset, length) : new Uint8Array();
    return decode(codec, width, this.take(codec, length), old);
  }

  /** @param {number} number @param {number} offset @param {number} length */
  base(number, offset, length) {
    const bytes = this.bases[number];
    if (offset + length > bytes.length) throw malformed("refers to bytes past the end of a base file");
    return bytes.subarray(offset, offset + length);
  }

  /** @param {number} codec @param {number} length @returns {Bytes} */
  take(codec, length) {
    const stream = this.streams.get(codec);
    if (!stream) throw malformed(`has no stream ${codec}`);
    const left = stream.buffer.length - stream.used;
    if (left >= length) {
      stream.used += length;
      return stream.buffer.subarray(stream.used - length, stream.used);
    }
    const result = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      if (stream.used === stream.buffer.length) {
        stream.buffer = this.frame(stream.frames[stream.next++]);
        stream.used = 0;
      }
      const piece = stream.buffer.subarray(stream.used, stream.used + length - at);
      result.set(piece, at);
      at += piece.length;
      stream.used += piece.length;
    }
    return result;
  }

  /** @param {{at: number, frame: Frame} | undefined} one */
  frame(one) {
    if (!one) throw malformed("has fewer frames than its steps need");
    const { at, frame } = one;
    const [stored, length, base] = frame;
    const prefix = base >= 0 ? this.bases[base] : undefined;
    if (prefix && prefix.length > MAX_PREFIX) throw malformed("needs a base file in memory that is too large");
    const bytes = unzstd(this.decoder, this.pack.subarray(at, at + stored), length, prefix);
    if (bytes.length !== length) throw malformed(`has a frame of ${bytes.length} bytes, expected ${length}`);
    return bytes;
  }
}

/** @param {string} what @param {string} [hint] */
function malformed(what, hint = "publish the model again") {
  return new EdgeInferError(`The pack ${what}`, "delta_error", { hint });
}
