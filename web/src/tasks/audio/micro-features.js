/** The step `audio.micro_features`: a sound to the features that microcontrollers compute. */

import { EdgeInferError } from "../../errors.js";
import { floats, packed, roundEven } from "../values.js";
import { MicroFrontend } from "./micro-frontend.js";

/** @typedef {import("./sound.js").Sound} Sound */
/** @typedef {import("./micro-frontend.js").Settings} Settings */

const SCALE = 25.6;
/** The integers of micro_speech: 256 steps over 0 to 26, `feature_provider.cc`. */
const [STEPS, SPAN] = [256, 666];

/**
 * It gives a tensor [frames, channels]; each sound begins without any noise heard before. All numbers are integers and the
 * same everywhere.
 *
 * @param {Settings & {unit: "real" | "int8"}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the bands do not fit the rate.
 */
export function prepare({ unit, ...settings }) {
  const { low_hz: low, high_hz: high, rate, window } = settings;
  if (!(low < high && high <= rate / 2)) {
    throw new EdgeInferError(
      `pipeline: \`audio.micro_features\` has bands from ${low} to ${high} Hz, expected them to rise and to end at ${rate / 2} at most`,
      "manifest_error",
      { hint: `"low_hz": 125, "high_hz": ${Math.min(7500, rate / 2)}`, details: { field: "high_hz" } },
    );
  }
  return (/** @type {Sound} */ sound) => {
    const samples = Array.from(sound.samples, sampleOf);
    const rows = new MicroFrontend(settings).features(samples);
    if (!rows.length) {
      throw new EdgeInferError(`a sound of ${samples.length} samples is too short: a frame takes ${window}`, "input_error", {
        hint: 'add silence, or the step {"step": "audio.fit", "samples": N} before this one',
      });
    }
    const [values, shape] = [rows.flat(), [rows.length, rows[0].length]];
    if (unit === "real") return floats(values.map((value) => value / SCALE), shape);
    const levels = values.map((value) => Math.floor((value * STEPS + SPAN / 2) / SPAN) - 128);
    return packed(levels.map((level) => Math.min(Math.max(level, -128), 127)), "int8", shape);
  };
}

/** @param {number} value @returns {number} As 16 bits hold it; what is not finite is silence. */
function sampleOf(value) {
  return Number.isFinite(value) ? Math.min(Math.max(roundEven(value * 32_768), -32_768), 32_767) : 0;
}
