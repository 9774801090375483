/** The step `audio.log_mel`: a sound to the logarithms of its energy in mel bands, frame by frame. */

import { EdgeInferError } from "../../errors.js";
import { floats } from "../values.js";
import { exactSum } from "./exact-sum.js";
import { RealFourier } from "./fourier.js";
import { melFilters } from "./mel.js";
import { windowOf } from "./window.js";

/** @typedef {import("./sound.js").Sound} Sound */
/**
 * @typedef {object} Parameters
 * @property {number} rate
 * @property {number} fft
 * @property {number | null} frame
 * @property {number} hop
 * @property {number} mels
 * @property {number} low_hz
 * @property {number | null} high_hz
 * @property {string} scale
 * @property {string} slopes
 * @property {boolean} area_norm
 * @property {1 | 2} power
 * @property {boolean} center
 * @property {"hann" | "hann_symmetric" | "hamming" | "povey"} window
 * @property {boolean} remove_mean
 * @property {number} preemphasis
 * @property {"log10" | "ln" | "ln_plus_floor"} log
 * @property {number} floor
 * @property {"plain" | "whisper"} style
 * @property {"frames_first" | "mels_first"} axes
 */

/**
 * It gives a tensor [frames, mels], or [mels, frames]. `hann` is periodic, the other windows are symmetric. All is float64
 * and rounded once; hosts differ in the last bit of cosines and logarithms: within 1e-9 before rounding. Sources: librosa's
 * `feature.melspectrogram`, transformers' `audio_utils.spectrogram` and `WhisperFeatureExtractor`, TensorFlow's
 * `signal.linear_to_mel_weight_matrix`, Kaldi's `feature-window.cc`.
 *
 * @param {Parameters} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: a frame is longer than the transform.
 */
export function prepare(parameters) {
  const { fft, hop, mels, power, center, style, axes } = parameters;
  const size = parameters.frame ?? fft;
  if (size > fft) {
    throw new EdgeInferError(`pipeline: \`audio.log_mel\` has frames of ${size} samples and a transform of ${fft}`, "manifest_error", {
      hint: `"fft": ${size}`,
      details: { field: "frame" },
    });
  }
  const bands = melFilters(parameters);
  const window = windowOf(parameters.window, size);
  const fourier = new RealFourier(fft);
  const isWhisper = style === "whisper";
  return (/** @type {Sound} */ sound) => {
    const samples = center ? reflected(sound.samples, Math.floor(fft / 2)) : sound.samples;
    const count = Math.floor((samples.length - size) / hop) + 1 - Number(isWhisper);
    if (count < 1) throw tooShort(sound.samples.length, `a frame takes ${size}`);
    const made = new Float64Array(count * mels);
    const part = new Float64Array(fft);
    for (let frame = 0; frame < count; frame++) {
      part.set(samples.subarray(frame * hop, frame * hop + size));
      prepareFrame(part, size, parameters);
      for (let i = 0; i < size; i++) part[i] *= window[i];
      const [real, imaginary] = fourier.transform(part);
      const energy = real.subarray(0, Math.floor(fft / 2) + 1).map((re, k) => re * re + imaginary[k] * imaginary[k]);
      const used = power === 1 ? energy.map(Math.sqrt) : energy;
      bands.forEach(({ first, weights }, band) => {
        let total = 0;
        for (let k = 0; k < weights.length; k++) total += used[first + k] * weights[k];
        made[frame * mels + band] = logarithm(total, parameters);
      });
    }
    const numbers = isWhisper ? whisper(made) : made;
    if (axes === "frames_first") return floats(Float32Array.from(numbers), [count, mels]);
    return floats(Float32Array.from(numbers, (_, i) => numbers[(i % count) * mels + Math.floor(i / count)]), [mels, count]);
  };
}

/**
 * Take the mean away and sharpen, in place, as Kaldi does.
 *
 * @param {Float64Array} part
 * @param {number} size Only the first of its elements are samples.
 * @param {Parameters} parameters
 */
function prepareFrame(part, size, { remove_mean, preemphasis }) {
  if (remove_mean) {
    const mean = exactSum(part.subarray(0, size)) / size;
    for (let i = 0; i < size; i++) part[i] -= mean;
  }
  if (!preemphasis) return;
  for (let i = size - 1; i > 0; i--) part[i] -= preemphasis * part[i - 1];
  part[0] -= preemphasis * part[0];
}

/** @param {Float64Array} logs @returns {Float64Array} What is 8 below the highest is raised to that, then (x + 4) / 4. */
function whisper(logs) {
  const least = logs.reduce((most, value) => Math.max(most, value), -Infinity) - 8;
  return logs.map((value) => (Math.max(value, least) + 4) / 4);
}

/** @param {Float32Array} samples @param {number} margin @returns {Float32Array} */
function reflected(samples, margin) {
  const { length } = samples;
  if (length <= margin) throw tooShort(length, `a frame reaches ${margin} beyond its ends`);
  const made = new Float32Array(length + 2 * margin);
  made.set(samples, margin);
  for (let i = 1; i <= margin; i++) {
    made[margin - i] = samples[i];
    made[margin + length - 1 + i] = samples[length - 1 - i];
  }
  return made;
}

/** @param {number} value @param {Parameters} parameters */
function logarithm(value, { log, floor }) {
  if (log === "log10") return Math.log10(Math.max(value, floor));
  return Math.log(log === "ln" ? Math.max(value, floor) : value + floor);
}

/** @param {number} length @param {string} why */
function tooShort(length, why) {
  return new EdgeInferError(`a sound of ${length} samples is too short: ${why}`, "input_error", {
    hint: 'add silence, or the step {"step": "audio.fit", "samples": N} before this one',
  });
}
