/** The step `audio.mfcc`: the logarithms of mel bands to cepstral coefficients, frame by frame. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { flat, floats } from "../values.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */
/** @typedef {"ortho" | "tensorflow"} Norm */

/**
 * It gives [frames, coefficients] for [frames, mels], as `audio.log_mel` gives them: the discrete cosine transform of the
 * second kind, in float64 and rounded once. Sources: librosa's `feature.mfcc`, TensorFlow's
 * `signal.mfccs_from_log_mel_spectrograms`.
 *
 * @param {{coefficients: number, norm: Norm}} parameters
 * @returns {import("../item.js").Apply}
 */
export function prepare({ coefficients, norm }) {
  /** @type {Float64Array} */
  let table = new Float64Array(0); // for as many mels as the step before gives: always the same
  return (/** @type {Tensor} */ tensor) => {
    const [frames, mels] = tensor.shape;
    if (tensor.shape.length !== 2 || mels < coefficients) {
      throw new EdgeInferError(
        `a tensor of shape ${shapeText(tensor.shape)} has no ${coefficients} coefficients, expected [frames, mels]`,
        "input_error",
        { hint: 'put {"step": "audio.log_mel"} before, its `axes` frames_first and its `mels` large enough' },
      );
    }
    if (table.length !== mels * coefficients) table = cosines(mels, coefficients, norm);
    const values = flat(tensor);
    const made = new Float32Array(frames * coefficients);
    for (let frame = 0; frame < frames; frame++) {
      for (let k = 0; k < coefficients; k++) {
        let total = 0;
        for (let n = 0; n < mels; n++) total += values[frame * mels + n] * table[k * mels + n];
        made[frame * coefficients + k] = total;
      }
    }
    return floats(made, [frames, coefficients]);
  };
}

/** @param {number} mels @param {number} count @param {Norm} norm @returns {Float64Array} The weights of the bands for each coefficient. */
function cosines(mels, count, norm) {
  const scale = Math.sqrt(2 / mels);
  const first = norm === "ortho" ? Math.sqrt(1 / mels) : scale;
  return Float64Array.from({ length: count * mels }, (_, i) => {
    const [k, n] = [Math.floor(i / mels), i % mels];
    return (k ? scale : first) * Math.cos((Math.PI * k * (2 * n + 1)) / (2 * mels));
  });
}
