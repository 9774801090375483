/**
 * Unpack Zstandard frames (RFC 8878) by zstddec, the reference decoder in WebAssembly.
 *
 * It knows no dictionaries, and a pack may name an old file as the prefix of a frame (`zstd --patch-from`). Such a frame
 * is given a new head instead: the prefix as raw blocks before its own blocks. What a decoder has put out is what later
 * blocks refer to, so the same matches are found, and the prefix is cut off the result.
 */

import { EdgeInferError } from "../errors.js";

const MAGIC = 0xfd2fb528;
const RAW_BLOCK_BYTES = 2 ** 17;

/** @typedef {{decode: (frame: Uint8Array, size: number) => Uint8Array}} Decoder */
/** @typedef {{size: number, end: number, hasChecksum: boolean}} Head What a frame says: the bytes that it unpacks to, where its blocks begin. */

/**
 * Load the decoder.
 *
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<Decoder>}
 * @throws {EdgeInferError} `backend_unavailable`: it is missing.
 */
export async function openZstd(root) {
  const place = new URL("vendor/zstddec/zstddec.mjs", root).href;
  try {
    const { ZSTDDecoder } = await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ place);
    const decoder = new ZSTDDecoder();
    await decoder.init();
    return decoder;
  } catch (cause) {
    throw new EdgeInferError(`${place} cannot be loaded: ${cause}`, "backend_unavailable", {
      hint: "the server lacks a file of this version: `python web/vendor.py`, or install edge-infer-web again",
      cause,
    });
  }
}

/**
 * Unpack one frame.
 *
 * @param {Decoder} decoder
 * @param {Uint8Array} frame
 * @param {number} limit The most bytes that it may say it has.
 * @param {Uint8Array} [prefix] The data before it: an old file.
 * @returns {Uint8Array<ArrayBuffer>}
 * @throws {EdgeInferError} `delta_error`.
 */
export function unzstd(decoder, frame, limit, prefix = new Uint8Array()) {
  const head = readHead(frame);
  if (head.size > limit) throw malformed(`has a frame of ${head.size} bytes, expected at most ${limit}`);
  const whole = prefix.length === 0 ? frame : withPrefix(frame, head, prefix);
  let bytes;
  try {
    bytes = decoder.decode(whole, prefix.length + head.size || 1);
  } catch (error) {
    throw malformed(`cannot be unpacked: ${error}`);
  }
  if (bytes.length !== prefix.length + head.size) throw malformed("has a frame that is damaged or cut short");
  return /** @type {Uint8Array<ArrayBuffer>} */ (bytes.subarray(prefix.length));
}

/**
 * @param {Uint8Array} frame
 * @returns {Head}
 */
function readHead(frame) {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < 6 || view.getUint32(0, true) !== MAGIC) throw malformed("has a frame that is not zstd");
  const descriptor = frame[4];
  const isSingle = (descriptor & 0x20) !== 0;
  if ((descriptor & 3) !== 0) throw malformed("has a frame with a dictionary");
  const width = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6];
  const at = isSingle ? 5 : 6;
  if (width === 0) throw malformed("has a frame that does not say its size");
  if (frame.length < at + width + 3) throw malformed("has a frame that is cut short");
  const size =
    width === 1
      ? frame[at]
      : width === 2
        ? view.getUint16(at, true) + 256
        : width === 4
          ? view.getUint32(at, true)
          : Number(view.getBigUint64(at, true));
  return { size, end: at + width, hasChecksum: (descriptor & 4) !== 0 };
}

/**
 * Write a frame again, as one of the prefix and its content.
 *
 * @param {Uint8Array} frame
 * @param {Head} head
 * @param {Uint8Array} prefix
 * @returns {Uint8Array}
 */
function withPrefix(frame, head, prefix) {
  const blocks = frame.subarray(head.end, head.hasChecksum ? frame.length - 4 : frame.length);
  const count = Math.ceil(prefix.length / RAW_BLOCK_BYTES);
  const whole = new Uint8Array(9 + prefix.length + 3 * count + blocks.length);
  const view = new DataView(whole.buffer);
  view.setUint32(0, MAGIC, true);
  whole[4] = 0xa0; // a size of 4 bytes, and one segment: all of the content can be referred to
  view.setUint32(5, prefix.length + head.size, true);
  let at = 9;
  for (let start = 0; start < prefix.length; start += RAW_BLOCK_BYTES) {
    const piece = prefix.subarray(start, start + RAW_BLOCK_BYTES);
    const header = piece.length << 3; // not the last block, type 0
    whole.set([header & 255, (header >> 8) & 255, header >> 16], at);
    whole.set(piece, at + 3);
    at += 3 + piece.length;
  }
  whole.set(blocks, at);
  return whole;
}

/** @param {string} what */
function malformed(what) {
  return new EdgeInferError(`The pack ${what}`, "delta_error", { hint: "publish the model again" });
}
