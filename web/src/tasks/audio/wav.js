/**
 * Read WAV files: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64.
 *
 * The format is that of "Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991), with
 * WAVE_FORMAT_EXTENSIBLE (Microsoft, 2001).
 */

import { EdgeInferError } from "../../errors.js";
import { mixed } from "./sound.js";

/** @typedef {import("./sound.js").Sound} Sound */
/** @typedef {{encoding: number, channels: number, rate: number, bits: number}} Format */

const [PCM, FLOAT, EXTENSIBLE] = [1, 3, 0xfffe];
/** How a sample is read, and what full scale is, by encoding and bits. @type {Record<string, [(view: DataView, at: number) => number, number]>} */
const READERS = {
  [`${PCM} 8`]: [(view, at) => view.getUint8(at) - 128, 128],
  [`${PCM} 16`]: [(view, at) => view.getInt16(at, true), 2 ** 15],
  [`${PCM} 24`]: [(view, at) => (view.getUint8(at) << 8) | (view.getUint16(at + 1, true) << 16), 2 ** 31],
  [`${PCM} 32`]: [(view, at) => view.getInt32(at, true), 2 ** 31],
  [`${FLOAT} 32`]: [(view, at) => view.getFloat32(at, true), 1],
  [`${FLOAT} 64`]: [(view, at) => view.getFloat64(at, true), 1],
};

/** @param {Uint8Array} data @returns {boolean} Whether it begins as a WAV file does. */
export function isWav(data) {
  return data.length >= 4 && String.fromCharCode(...data.subarray(0, 4)) === "RIFF";
}

/**
 * @param {Uint8Array} data
 * @returns {Sound} The samples of a WAV file, its channels mixed to one.
 * @throws {EdgeInferError} `input_error`: it is damaged, holds no sound, or is of a kind that is not read here.
 */
export function readWav(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const text = (/** @type {number} */ at) => String.fromCharCode(...data.subarray(at, at + 4));
  if (data.length < 12 || text(0) !== "RIFF" || text(8) !== "WAVE") throw wrong("the sound is not a WAV file");
  /** @type {Format} */
  let format = { encoding: 0, channels: 0, rate: 0, bits: 0 };
  for (let at = 12; at + 8 <= data.length; ) {
    const size = view.getUint32(at + 4, true);
    const end = Math.min(at + 8 + size, data.length);
    if (text(at) === "fmt ") format = readFormat(view, at + 8, end);
    else if (text(at) === "data") return readSound(view, at + 8, end, format);
    at += 8 + size + (size % 2);
  }
  throw wrong("the WAV file has no samples");
}

/** @param {DataView} view @param {number} at @param {number} end @returns {Format} */
function readFormat(view, at, end) {
  if (end - at < 16) throw wrong("the WAV file's format is cut short");
  const given = view.getUint16(at, true);
  const encoding = given === EXTENSIBLE && end - at >= 26 ? view.getUint16(at + 24, true) : given;
  return { encoding, channels: view.getUint16(at + 2, true), rate: view.getUint32(at + 4, true), bits: view.getUint16(at + 14, true) };
}

/** @param {DataView} view @param {number} start @param {number} end @param {Format} format @returns {Sound} */
function readSound(view, start, end, { encoding, channels, rate, bits }) {
  if (channels < 1 || channels > 64 || rate < 1 || rate > 768_000) {
    throw wrong(`the WAV file has ${channels} channels of ${rate} samples per second, expected 1 to 64 of 1 to 768000`);
  }
  const reader = READERS[`${encoding} ${bits}`];
  if (!reader) throw wrong(`the WAV file has encoding ${encoding} with ${bits} bits, which is not read here`);
  const [read, full] = reader;
  const width = bits / 8;
  const count = Math.floor((end - start) / (width * channels));
  const planes = Array.from({ length: channels }, (_, channel) => {
    const plane = new Float64Array(count);
    for (let i = 0, at = start + channel * width; i < count; i++, at += width * channels) plane[i] = read(view, at);
    return plane;
  });
  return { samples: mixed(planes, 1 / full), rate };
}

/** @param {string} message */
function wrong(message) {
  return new EdgeInferError(message, "input_error", { hint: "give a WAV file of 8 to 32-bit PCM or of floats" });
}
