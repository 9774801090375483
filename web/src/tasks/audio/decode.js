/** The step `audio.decode`: a file, bytes or samples to a sound of one channel. */

import { EdgeInferError } from "../../errors.js";
import { MAX_SAMPLES, mixed } from "./sound.js";
import { isWav, readWav } from "./wav.js";

/** @typedef {import("./sound.js").Sound} Sound */

/** The largest file. */
const MAX_BYTES = 1024 * 2 ** 20;
const MAX_RATE = 768_000;
/** What the browser decodes other files at. */
const DECODED_RATE = 48_000;
const HINT = "give a URL, a Blob, the bytes of a file, an AudioBuffer, a Float32Array of samples, or {array: samples, sampling_rate: 44100}";

/**
 * WAV files are read here, others by the browser. Channels are mixed to one.
 *
 * @param {{rate: number, sampling_rate: number | null}} parameters `rate` is that of samples which are given without one.
 * @returns {import("../item.js").Apply}
 */
export function prepare({ rate, sampling_rate: given }) {
  return async (value, item) => {
    const sound = await read(value, item.argument("sampling_rate", given ?? rate));
    const { samples } = sound;
    if (samples.length < 1 || samples.length > MAX_SAMPLES) {
      throw new EdgeInferError(`a sound has ${samples.length} samples, expected 1 to ${MAX_SAMPLES}`, "input_error", {
        hint: samples.length ? "cut it into parts" : "record it again: it is empty",
      });
    }
    if (!samples.every(Number.isFinite)) {
      throw new EdgeInferError("a sound holds NaN or infinity", "input_error", { hint: "give samples of -1 to 1" });
    }
    item.rate = sound.rate;
    return sound;
  };
}

/** @param {any} value @param {number} rate @returns {Promise<Sound>} */
async function read(value, rate) {
  if (typeof value === "string" || value instanceof URL) return decoded(await fetched(String(value)));
  if (typeof Blob !== "undefined" && value instanceof Blob) return decoded(new Uint8Array(await checked(value).arrayBuffer()));
  if (value instanceof ArrayBuffer) return decoded(new Uint8Array(value));
  if (value instanceof Uint8Array) return decoded(value);
  if (typeof value?.getChannelData === "function") return ofBuffer(value);
  if (value !== null && typeof value === "object" && "sampling_rate" in value) {
    const { sampling_rate: own } = value;
    if (!Number.isInteger(own) || own < 1 || own > MAX_RATE) {
      throw new EdgeInferError(`a sound has a sampling rate of ${JSON.stringify(own)}, expected 1 to ${MAX_RATE}`, "input_error", { hint: HINT });
    }
    return { samples: samplesOf(value.array ?? value.raw), rate: own };
  }
  return { samples: samplesOf(value), rate };
}

/** @param {AudioBuffer} buffer @returns {Sound} */
function ofBuffer(buffer) {
  const planes = Array.from({ length: buffer.numberOfChannels }, (_, channel) => buffer.getChannelData(channel));
  return { samples: mixed(planes, 1), rate: buffer.sampleRate };
}

/** @param {string} url @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function fetched(url) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url);
  } catch (cause) {
    throw new EdgeInferError(`the sound \`${url}\` cannot be fetched`, "fetch_error", { details: { url }, cause });
  }
  if (!response.ok) {
    throw new EdgeInferError(`the sound \`${url}\` answers with status ${response.status}`, "fetch_error", { details: { url, status: response.status } });
  }
  return new Uint8Array(await checked(await response.blob()).arrayBuffer());
}

/** @param {Blob} blob */
function checked(blob) {
  if (blob.size <= MAX_BYTES) return blob;
  throw new EdgeInferError(`the sound has ${blob.size} bytes, expected at most ${MAX_BYTES}`, "input_error", { hint: "cut it into parts" });
}

/** @param {Uint8Array} data @returns {Promise<Sound>} */
async function decoded(data) {
  if (!data.length) throw new EdgeInferError("the sound is empty: it has 0 bytes", "input_error", { hint: "record it again" });
  if (isWav(data)) return readWav(data);
  if (typeof OfflineAudioContext === "undefined") {
    throw new EdgeInferError("the sound is not a WAV file", "input_error", { hint: "a page reads others too; a worker and Node do not" });
  }
  try {
    const context = new OfflineAudioContext(1, 1, DECODED_RATE);
    return ofBuffer(await context.decodeAudioData(data.slice().buffer));
  } catch (cause) {
    const said = cause instanceof Error ? cause.message : String(cause);
    throw new EdgeInferError(`the sound cannot be read: ${said}`, "input_error", { hint: "give a WAV, FLAC, Ogg or MP3 file", cause });
  }
}

/** @param {any} value @returns {Float32Array} Samples of one channel: integers are scaled by their type's full scale. */
function samplesOf(value) {
  if (value instanceof Float32Array || value instanceof Float64Array) return Float32Array.from(value);
  if (value instanceof Int16Array) return mixed([value], 1 / 2 ** 15);
  if (value instanceof Int32Array) return mixed([value], 1 / 2 ** 31);
  if (Array.isArray(value) && value.every((one) => typeof one === "number")) return Float32Array.from(value);
  throw new EdgeInferError(`a ${value?.constructor?.name ?? typeof value} is not a sound`, "input_error", { hint: HINT });
}
