/** The step `audio.resample`: a sound at the samples per second that the model takes. */

import { EdgeInferError } from "../../errors.js";
import { MAX_SAMPLES } from "./sound.js";

/** @typedef {import("./sound.js").Sound} Sound */
/** @typedef {{up: number, down: number, half: number, rows: Float32Array[]}} Table Weights of a polyphase filter: how many phases
 *   there are, how many one new sample takes, half the taps of a phase, and the weights of each, rounded to float32. */

const MOST_TABLES = 8;
/** The most weights of a filter: 44,100 to 16,000 takes 15,000; rates without a common factor take millions. */
const MAX_WEIGHTS = 2_000_000;
/** @type {Map<string, Table>} */
const tables = new Map();

/**
 * A sinc under a Hann window. The weights are rounded to float32 and the sums are float64, tap by tap, so that every
 * language gives the same. The algorithm is J. O. Smith's bandlimited interpolation (https://ccrma.stanford.edu/~jos/resample/).
 *
 * @param {{rate: number, zeros: number, rolloff: number}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ rate, zeros, rolloff }) {
  return (/** @type {Sound} */ sound, item) => {
    item.rate = rate;
    if (sound.rate === rate) return sound;
    const { length } = sound.samples;
    if (length * rate > MAX_SAMPLES * sound.rate) {
      throw new EdgeInferError(`a sound of ${length} samples at ${sound.rate} per second is too long at ${rate} per second`, "input_error", {
        hint: "cut it into parts",
      });
    }
    return { samples: resampled(sound.samples, table(sound.rate, rate, zeros, rolloff)), rate };
  };
}

/** @param {number} old @param {number} rate @param {number} zeros @param {number} rolloff @returns {Table} */
function table(old, rate, zeros, rolloff) {
  const key = `${old} ${rate} ${zeros} ${rolloff}`;
  const known = tables.get(key);
  if (known) return known;
  const common = divisor(old, rate);
  const [up, down] = [rate / common, old / common];
  const cut = Math.min(1, up / down) * rolloff;
  const half = Math.ceil(zeros / cut);
  if (up * 2 * half > MAX_WEIGHTS) {
    throw new EdgeInferError(`a sound of ${old} samples per second cannot be resampled to ${rate}: it takes ${up * 2 * half} weights`, "input_error", {
      hint: "record at 8000, 16000, 44100 or 48000 samples per second",
    });
  }
  const rows = Array.from({ length: up }, (_, phase) => {
    const shift = ((phase * down) % up) / up;
    return Float32Array.from({ length: 2 * half }, (_, tap) => {
      const x = tap + 1 - half - shift;
      const window = Math.abs(x) < half ? 0.5 + 0.5 * Math.cos((Math.PI * x) / half) : 0;
      return cut * sinc(cut * x) * window;
    });
  });
  if (tables.size >= MOST_TABLES) tables.delete(/** @type {string} */ (tables.keys().next().value));
  const made = { up, down, half, rows };
  tables.set(key, made);
  return made;
}

/** @param {number} one @param {number} other @returns {number} The greatest common divisor. */
function divisor(one, other) {
  return other ? divisor(other, one % other) : one;
}

/** @param {number} x */
function sinc(x) {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/** @param {Float32Array} samples @param {Table} table @returns {Float32Array} */
function resampled(samples, { up, down, half, rows }) {
  const made = new Float32Array(Math.ceil((samples.length * up) / down));
  const around = new Float64Array(half - 1 + samples.length + half + down);
  around.set(samples, half - 1);
  for (let i = 0; i < made.length; i++) {
    const start = Math.floor((i * down) / up);
    const row = rows[i % up];
    let value = 0;
    for (let tap = 0; tap < 2 * half; tap++) value += around[start + tap] * row[tap];
    made[i] = value;
  }
  return made;
}
