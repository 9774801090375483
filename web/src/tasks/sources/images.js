/** The steps that bring an image to a model. The same as `edge_infer.tasks.sources.images`. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";

/** @typedef {import("../../tensors.js").TensorSpec} TensorSpec */
/** @typedef {Record<string, any>} StepJson A step as a manifest writes it; what is undefined is left to its default. */

export const IMAGENET_MEAN = [0.485, 0.456, 0.406];
export const IMAGENET_STD = [0.229, 0.224, 0.225];
const LEVELS = ["uint8", "int8"];

/** @param {number | string | undefined} dim */
const isColour = (dim) => dim === 1 || dim === 3;
/** @param {number | string} dim */
const fixed = (dim) => (typeof dim === "number" ? dim : undefined);

/** An input that takes images. */
export class ImageInput {
  /** @param {TensorSpec} spec */
  constructor(spec) {
    this.name = spec.name;
    this.spec = spec;
    if (!isImage(spec)) {
      throw new EdgeInferError(`input \`${specText(spec)}\` does not take images, expected [batch, channels, height, width] or channels last`, "unsupported", {
        hint: "say what the steps are: --preprocess FILE.json",
      });
    }
    const [first, middle, last] = spec.shape.slice(-3);
    const isLast = isColour(last) && !isColour(first);
    /** `NCHW` where the shape does not show the layout: ONNX models of images have their channels first. */
    this.layout = isColour(first) !== isColour(last) ? undefined : "NCHW";
    const channels = isLast ? last : first;
    /** In pixels; undefined where it is free. */
    this.height = fixed(isLast ? first : middle);
    this.width = fixed(isLast ? middle : last);
    this.channels = fixed(channels) ?? 3;
  }

  /** @returns {StepJson} The first step. */
  decode() {
    return { step: "image.decode", mode: this.channels === 1 ? "L" : undefined };
  }

  /**
   * @param {number} scale
   * @param {number[]} mean
   * @param {number[]} std
   * @returns {StepJson} The last step: `(level * scale - mean) / std`, or the levels themselves for a quantized input.
   */
  tensor(scale, mean, std) {
    const isPlain = scale === 1 && mean.every((one) => one === 0) && std.every((one) => one === 1);
    if (LEVELS.includes(this.spec.dtype) || isPlain) return { step: "image.to_tensor", layout: this.layout };
    const [means, stds] = [mean, std].map((one) => (one.length === this.channels ? one : new Array(this.channels).fill(one[0])));
    return { step: "image.rescale_normalize", scale, mean: means, std: stds, layout: this.layout };
  }

  /**
   * @param {number | undefined} width Undefined for one that depends on the image.
   * @param {number | undefined} height
   * @param {string} where
   * @throws {EdgeInferError} `unsupported`: the model takes another size.
   */
  check(width, height, where) {
    const isFixed = this.width !== undefined && this.height !== undefined;
    if (!isFixed || (width === this.width && height === this.height)) return;
    const said = width === undefined ? "images of different sizes" : `${width} x ${height} pixels`;
    throw new EdgeInferError(`\`${where}\` makes ${said}, and input \`${specText(this.spec)}\` takes ${this.width} x ${this.height}`, "unsupported", {
      hint: "export the model with free height and width, or change the size there",
    });
  }
}

/** @param {TensorSpec} spec @returns {boolean} Whether an input may be an image: three or four dimensions, 1 or 3 channels. */
export function isImage({ dtype, shape }) {
  if (!["float32", "float16", ...LEVELS].includes(dtype) || ![3, 4].includes(shape.length)) return false;
  const [first, , last] = shape.slice(-3);
  if (shape.length === 3 && shape.some((dim) => typeof dim === "string")) return false;
  return isColour(first) || isColour(last) || shape.every((dim) => typeof dim === "string");
}
