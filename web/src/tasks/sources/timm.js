/** Read the `config.json` that timm writes. The same as `edge_infer.tasks.sources.timm`, which names the rules' source. */

import { EdgeInferError } from "../../errors.js";
import { made, outputOf } from "./found.js";
import { IMAGENET_MEAN, IMAGENET_STD, ImageInput } from "./images.js";

/** @typedef {import("./fields.js").Fields} Fields */
/** @typedef {import("./found.js").Facts} Facts */
/** @typedef {import("./found.js").Found} Found */

const SOURCE = "timm";
const FILTERS = ["bilinear", "bicubic", "lanczos", "nearest", "box"];
const CROP = 0.875;

/**
 * @param {Fields} config The folder's `config.json`.
 * @param {Facts} facts
 * @returns {Found | null} Null for a model that is not of timm.
 * @throws {EdgeInferError} `bundle_error` or `unsupported`.
 */
export function findTimm(config, facts) {
  const given = config.part("pretrained_cfg");
  if (!given) return null;
  const image = new ImageInput(facts.inputs[0]);
  const size = given.numbers("input_size", [3, 224, 224]);
  if (size.length !== 3 || !size.every((one) => Number.isInteger(one) && one >= 1 && one <= 16_384)) {
    throw new EdgeInferError(`\`${given.where}\`: \`input_size\` is ${size}, expected [channels, height, width]`, "bundle_error", {
      hint: 'write "input_size": [3, 224, 224]',
    });
  }
  const [height, width] = [image.height || size[1], image.width || size[2]];
  const crop = given.real("crop_pct", CROP) || CROP;
  const mode = given.text("crop_mode", "center") || "center";
  if (!(crop >= 0.1 && crop <= 1)) {
    throw new EdgeInferError(`\`${given.where}\`: \`crop_pct\` is ${crop}, expected 0.1 to 1`, "bundle_error", { hint: 'write "crop_pct": 0.875' });
  }
  const filter = given.text("interpolation", "bicubic");
  if (!FILTERS.includes(filter)) {
    throw new EdgeInferError(`\`${given.where}\`: the interpolation \`${filter}\` is not supported`, "unsupported", {
      hint: 'write "interpolation": "bicubic"',
    });
  }
  const [larger, wider] = [Math.floor(height / crop), Math.floor(width / crop)];
  if (mode !== "squash" && !(mode === "center" && height === width)) {
    throw new EdgeInferError(`\`${given.where}\`: the crop mode \`${mode}\` to ${width} x ${height} is not supported`, "unsupported", {
      hint: "say what the steps are: --preprocess FILE.json",
    });
  }
  const resize = mode === "squash" ? { width: wider, height: larger } : { shortest: larger };
  const [mean, std] = [given.numbers("mean", IMAGENET_MEAN), given.numbers("std", IMAGENET_STD)];
  const before = [
    image.decode(),
    { step: "image.resize", ...resize, filter },
    { step: "image.center_crop", width, height, rule: "torchvision" },
    image.tensor(1 / 255, mean, std),
  ];
  const tensor = facts.outputs.length > 1 ? outputOf(facts, "logits", "output")?.name : undefined;
  if (config.whole("num_classes", given.whole("num_classes", 1)) === 0) {
    return made("image-feature-extraction", SOURCE, { [image.name]: before }, [{ step: "post.tensor", tensor }]);
  }
  return made("image-classification", SOURCE, { [image.name]: before }, [{ step: "post.softmax", tensor }, { step: "post.top_k" }], labelsOf(config, given));
}

/** @param {Fields} config @param {Fields} given @returns {string[]} The names of the classes, with their descriptions where there are some. */
function labelsOf(config, given) {
  const own = config.texts("label_names");
  const names = own.length ? own : given.texts("label_names");
  if (!names.length) return config.labels("id2label");
  const described = config.part("label_descriptions") ?? given.part("label_descriptions");
  return described ? names.map((name) => described.text(name, name)) : names;
}
