/** The steps of transformers' feature extractors of sound. The same as `edge_infer.tasks.sources.feature_extractors`. */

import { EdgeInferError } from "../../errors.js";
import { listed } from "../words.js";

/** @typedef {import("./images.js").StepJson} StepJson */
/** @typedef {import("./fields.js").Fields} Fields */

const KNOWN = ["ASTFeatureExtractor", "Wav2Vec2FeatureExtractor", "WhisperFeatureExtractor"];

/**
 * @param {Fields} config preprocessor_config.json.
 * @param {import("../../tensors.js").TensorSpec} spec The model's input.
 * @returns {StepJson[]} The steps that make it of a sound.
 * @throws {EdgeInferError} `unsupported`: the class is another one.
 */
export function soundSteps(config, spec) {
  const name = config.text("feature_extractor_type");
  if (!KNOWN.includes(name)) {
    throw new EdgeInferError(`the feature extractor \`${name}\` is not supported; supported are ${listed(KNOWN)}`, "unsupported", {
      hint: "say what the steps are: --preprocess FILE.json",
    });
  }
  const rate = config.whole("sampling_rate", 0) || 16_000;
  const steps = [{ step: "audio.decode", rate }, { step: "audio.resample", rate }];
  if (name === "ASTFeatureExtractor") return [...steps, ...fbank(config, rate)];
  if (name === "WhisperFeatureExtractor") return [...steps, ...whisper(config, rate)];
  const last = spec.shape.at(-1);
  const cut = typeof last === "number" ? [{ step: "audio.fit", samples: last }] : [];
  return [...steps, ...cut, { step: "audio.normalize", method: config.flag("do_normalize", true) ? "mean_variance" : "none" }];
}

/** @param {Fields} config @param {number} rate @returns {StepJson[]} Kaldi's features, as `ASTFeatureExtractor` makes them. */
function fbank(config, rate) {
  /** @type {StepJson[]} */
  const steps = [
    {
      ...{ step: "audio.log_mel", rate, frame: 400, fft: 512, hop: 160, mels: config.whole("num_mel_bins", 128), low_hz: 20, scale: "htk" },
      ...{ slopes: "mel", area_norm: false, center: false, window: "hann_symmetric", remove_mean: true, preemphasis: 0.97 },
      ...{ log: "ln", floor: 2 ** -23 },
    },
    { step: "tensor.fit", rows: config.whole("max_length", 1024) },
  ];
  if (!config.flag("do_normalize", true)) return steps;
  const [mean, std] = [config.real("mean", -4.2677393), config.real("std", 4.5689974)];
  return [...steps, { step: "tensor.normalize", mean, std: 2 * std }];
}

/** @param {Fields} config @param {number} rate @returns {StepJson[]} */
function whisper(config, rate) {
  const sizes = { fft: config.whole("n_fft", 400), hop: config.whole("hop_length", 160), mels: config.whole("feature_size", 80) };
  return [
    { step: "audio.fit", samples: (config.whole("chunk_length", 0) || 30) * rate },
    // `high_hz` of transformers' filters is 8000, whatever the rate.
    { step: "audio.log_mel", rate, ...sizes, high_hz: 8000, style: "whisper", axes: "mels_first" },
  ];
}
