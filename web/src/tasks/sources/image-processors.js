/**
 * The image processors of transformers: `preprocessor_config.json` to steps. The same as `edge_infer.tasks.sources.image_processors`,
 * which names the source of the defaults.
 */

import { EdgeInferError } from "../../errors.js";
import { listed } from "../words.js";
import { IMAGENET_MEAN, IMAGENET_STD } from "./images.js";

/** @typedef {import("./fields.js").Fields} Fields */
/** @typedef {import("./images.js").ImageInput} ImageInput */
/** @typedef {import("./images.js").StepJson} StepJson */
/** @typedef {Record<string, number>} Size */
/**
 * @typedef {object} Defaults The defaults of a processor's class, where its file names none.
 * @property {number} resample
 * @property {number[]} mean
 * @property {number[]} std
 * @property {Size} size
 * @property {number} [crop]
 * @property {boolean} [crops]
 * @property {boolean} [normalizes] Unless false.
 * @property {boolean} [flips]
 * @property {boolean} [isSquare] Whether a size of one number is that of both sides.
 * @property {number} [cropPart]
 * @property {string[]} [refuses] Flags that ask for what no step does.
 */

/** Pillow's numbers of filters (`PIL.Image.Resampling`). */
const FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];
const MAX_SIDE = 16_384;
const HALF = { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };
const CLIP = { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
const IMAGENET = { mean: IMAGENET_MEAN, std: IMAGENET_STD };
/** @param {number} side */
const square = (side) => ({ height: side, width: side });
/** @param {number} side */
const shortest = (side) => ({ shortest_edge: side });
const DETR = { resample: 2, ...IMAGENET, size: { shortest_edge: 800, longest_edge: 1333 } };
const CUT = { resample: 3, ...CLIP, size: shortest(224), crop: 224, crops: true };
const MOBILE = { resample: 2, ...HALF, size: shortest(256), crop: 224, crops: true };
/** @type {Record<string, Defaults>} */
const PROCESSORS = {
  BeitImageProcessor: { resample: 3, ...HALF, size: square(224), crop: 224, isSquare: true },
  BitImageProcessor: CUT,
  CLIPImageProcessor: CUT,
  ConditionalDetrImageProcessor: DETR,
  ConvNextImageProcessor: { resample: 3, ...HALF, size: shortest(384), cropPart: 224 / 256 },
  DPTImageProcessor: { resample: 3, ...HALF, size: square(384), isSquare: true, refuses: ["do_pad"] },
  DeformableDetrImageProcessor: DETR,
  DeiTImageProcessor: { resample: 3, ...HALF, size: square(256), crop: 224, crops: true, isSquare: true },
  DetrImageProcessor: DETR,
  EfficientNetImageProcessor: { resample: 3, ...HALF, size: square(346), crop: 289, isSquare: true, refuses: ["rescale_offset"] },
  LevitImageProcessor: { resample: 3, ...IMAGENET, size: shortest(224), crop: 224, crops: true },
  MobileNetV1ImageProcessor: MOBILE,
  MobileNetV2ImageProcessor: MOBILE,
  MobileViTImageProcessor: { resample: 3, ...HALF, size: shortest(224), crop: 256, crops: true, normalizes: false, flips: true },
  PvtImageProcessor: { resample: 3, ...IMAGENET, size: square(224), isSquare: true },
  RTDetrImageProcessor: { resample: 2, ...IMAGENET, size: square(640), normalizes: false, refuses: ["do_pad"] },
  SegformerImageProcessor: { resample: 2, ...IMAGENET, size: square(512), isSquare: true },
  SiglipImageProcessor: { resample: 3, ...HALF, size: square(224) },
  ViTImageProcessor: { resample: 2, ...HALF, size: square(224), isSquare: true },
  YolosImageProcessor: DETR,
};

/**
 * @param {Fields} config The folder's `preprocessor_config.json`.
 * @param {ImageInput} image The model's input.
 * @returns {StepJson[]} The steps of an image processor.
 * @throws {EdgeInferError} `bundle_error`: a field has the wrong type. `unsupported`: the type is unknown, it asks for what no step does, or the
 *   model takes another size.
 */
export function imageSteps(config, image) {
  const name = processorType(config);
  if (!Object.hasOwn(PROCESSORS, name)) {
    throw unsupported(
      `the image processor \`${name || "without a name"}\` is not supported; supported are ${listed(Object.keys(PROCESSORS).sort())}`,
      "say what the steps are: --preprocess FILE.json",
    );
  }
  const own = PROCESSORS[name];
  for (const flag of own.refuses ?? []) {
    if (isTrue(config.get(flag))) throw unsupported(`\`${flag}\` of ${name} is not supported`, "--preprocess FILE.json");
  }
  const steps = [image.decode()];
  /** @type {[width?: number, height?: number]} */
  let [width, height] = [];
  if (config.flag("do_resize", true)) {
    const resized = resize(config, name, own);
    steps.push(...resized.steps);
    [width, height] = resized.sides;
  }
  if (config.flag("do_center_crop", own.crops ?? false)) {
    const crop = sizeOf(config, "crop_size", square(own.crop ?? 0), true);
    if (!("height" in crop && "width" in crop)) {
      throw unsupported(`\`crop_size\` of ${name} is ${JSON.stringify(crop)}, expected height and width`, writeSize("crop_size"));
    }
    ({ width, height } = crop);
    steps.push({ step: "image.center_crop", width, height });
  }
  image.check(width, height, "preprocessor_config.json");
  if (config.flag("do_flip_channel_order", own.flips ?? false)) steps.push({ step: "image.flip_channels" });
  const scale = config.flag("do_rescale", true) ? config.real("rescale_factor", 1 / 255) : 1;
  const [ownMean, ownStd] = [config.numbers("image_mean", own.mean), config.numbers("image_std", own.std)];
  if (ownMean.length !== ownStd.length || ![1, 3].includes(ownMean.length) || ownStd.includes(0)) {
    throw damaged(
      `\`${config.where}\`: \`image_mean\` and \`image_std\` are [${ownMean}] and [${ownStd}]`,
      'write 1 or 3 numbers, none of them 0: "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]',
    );
  }
  const normalizes = config.flag("do_normalize", own.normalizes ?? true);
  const mean = normalizes ? ownMean : ownMean.map(() => 0);
  let std = normalizes ? ownStd : ownStd.map(() => 1);
  // Classifiers of it divide by the deviation once more.
  if (name === "EfficientNetImageProcessor" && config.flag("include_top", true)) std = std.map((one, i) => one * ownStd[i]);
  return [...steps, image.tensor(scale, mean, std)];
}

/** @param {Fields} config @returns {string} The class: older files call it a feature extractor, and others its fast version. */
export function processorType(config) {
  const name = config.text("image_processor_type") || config.text("feature_extractor_type");
  return name.replace(/Fast$/, "").replace(/Pil$/, "").replaceAll("FeatureExtractor", "ImageProcessor");
}

/**
 * @param {Fields} config
 * @param {string} name
 * @param {Defaults} own
 * @returns {{steps: StepJson[], sides: [width?: number, height?: number]}} The steps that resize, and what comes out where it is always the same.
 */
function resize(config, name, own) {
  const size = sizeOf(config, "size", own.size, own.isSquare ?? false);
  const number = config.whole("resample", own.resample);
  if (FILTERS[number] === undefined) {
    throw unsupported(
      `\`resample\` ${number} of ${name} is not one of Pillow's filters`,
      'write "resample": 2 for bilinear, or another number from 0 to 5',
    );
  }
  const how = { filter: FILTERS[number] };
  if ("height" in size && "width" in size) {
    if (name === "DPTImageProcessor") return dpt(config, size.width, size.height, how);
    return warped(size.width, size.height, how);
  }
  const { shortest_edge: least, longest_edge: longest } = size;
  if (least === undefined && longest === undefined) {
    throw unsupported(`\`size\` of ${name} is ${JSON.stringify(size)}, expected height and width, or shortest_edge`, writeSize("size"));
  }
  if (name === "YolosImageProcessor") {
    throw unsupported(
      "YolosImageProcessor brings sides to multiples of 16, which no step does",
      'write a fixed size into preprocessor_config.json: "size": {"height": 512, "width": 512}',
    );
  }
  if (name === "ConvNextImageProcessor" && least !== undefined) return convnext(config, least, own.cropPart ?? 0, how);
  const side = name === "LevitImageProcessor" && least !== undefined ? Math.trunc((256 / 224) * least) : least;
  return { steps: [{ step: "image.resize", shortest: side, longest, ...how }], sides: [] };
}

/** @param {number} width @param {number} height @param {StepJson} how @returns {ReturnType<typeof resize>} */
function warped(width, height, how) {
  return { steps: [{ step: "image.resize", width, height, ...how }], sides: [width, height] };
}

/**
 * DPT's own rule: both sides are multiples, and the proportions may be kept.
 *
 * @param {Fields} config
 * @param {number} width
 * @param {number} height
 * @param {StepJson} how
 * @returns {ReturnType<typeof resize>}
 */
function dpt(config, width, height, how) {
  const multiple = config.whole("ensure_multiple_of", 1) || 1;
  if (multiple > 1024) throw damaged(`\`${config.where}\`: \`ensure_multiple_of\` is ${multiple}, expected 1 to 1024`, 'write "ensure_multiple_of": 32');
  if (config.flag("keep_aspect_ratio")) return { steps: [{ step: "image.resize", width, height, multiple, ...how }], sides: [] };
  const [wide, high] = [width, height].map((side) => Math.max(rounded(side / multiple), 1) * multiple);
  return warped(wide, high, how);
}

/** @param {number} value @returns {number} Rounded as Python does: halves to the even number. */
function rounded(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

/**
 * ConvNeXT's own rule: a crop below 384 pixels, and a warp from there on.
 *
 * @param {Fields} config
 * @param {number} side
 * @param {number} usual
 * @param {StepJson} how
 * @returns {ReturnType<typeof resize>}
 */
function convnext(config, side, usual, how) {
  if (side >= 384) return warped(side, side, how);
  const part = config.real("crop_pct", usual);
  if (!(part >= 0.1 && part <= 1)) throw damaged(`\`${config.where}\`: \`crop_pct\` is ${part}, expected 0.1 to 1`, 'write "crop_pct": 0.875');
  const first = { step: "image.resize", shortest: Math.trunc(side / part), ...how };
  return { steps: [first, { step: "image.center_crop", width: side, height: side }], sides: [side, side] };
}

/**
 * @param {Fields} config
 * @param {string} field
 * @param {Size} otherwise
 * @param {boolean} isSquare
 * @returns {Size} An object, or as older files have it one number or two.
 */
function sizeOf(config, field, otherwise, isSquare) {
  const value = config.get(field);
  const longest = field === "size" ? config.whole("max_size") : undefined;
  /** @type {Size} */
  let found;
  if (typeof value === "number") {
    const side = config.whole(field, 0);
    found = isSquare ? square(side) : { ...shortest(side), ...(longest === undefined ? {} : { longest_edge: longest }) };
  } else if (Array.isArray(value)) {
    const sides = config.numbers(field);
    if (sides.length !== 2) throw damaged(`\`${config.where}\`: \`${field}\` is [${value}], expected [height, width]`, writeSize(field));
    found = { height: Math.trunc(sides[0]), width: Math.trunc(sides[1]) };
  } else {
    const part = config.part(field);
    found = part ? Object.fromEntries(Object.keys(part.values).flatMap((key) => (part.has(key) ? [[key, part.whole(key, 0)]] : []))) : otherwise;
  }
  for (const [key, side] of Object.entries(found)) {
    if (["height", "width", "shortest_edge", "longest_edge"].includes(key) && side >= 1 && side <= MAX_SIDE) continue;
    throw unsupported(`\`${config.where}\`: \`${field}\` has ${key} ${side}, expected 1 to ${MAX_SIDE} pixels`, writeSize(field));
  }
  return found;
}

/** @param {any} value @returns {boolean} Whether Python takes it as true. */
export function isTrue(value) {
  return Boolean(value) && !(typeof value === "object" && Object.keys(value).length === 0);
}

/** @param {string} field @returns {string} */
function writeSize(field) {
  return `write "${field}": {"height": 224, "width": 224}`;
}

/** @param {string} message @param {string} hint */
function unsupported(message, hint) {
  return new EdgeInferError(message, "unsupported", { hint });
}

/** @param {string} message @param {string} hint */
function damaged(message, hint) {
  return new EdgeInferError(message, "bundle_error", { hint });
}
