/** Where a model's input has its channels. */

import { EdgeInferError } from "../../errors.js";
import { specText } from "../place.js";

/**
 * @param {"auto" | "NCHW" | "NHWC"} layout `auto` for what the input's shape says, which may differ from variant to variant.
 * @param {import("../../tensors.js").TensorSpec} spec
 * @returns {boolean} Whether the channels come before the rows.
 * @throws {EdgeInferError} `manifest_error`: the shape does not say.
 */
export function isChannelsFirst(layout, spec) {
  if (layout !== "auto") return layout === "NCHW";
  const shape = spec.shape.slice(-3);
  const [first, last] = [0, 2].map((axis) => shape.length === 3 && (shape[axis] === 1 || shape[axis] === 3));
  if (first !== last) return first;
  throw new EdgeInferError(`pipeline: input \`${specText(spec)}\` does not show where its channels are`, "manifest_error", {
    hint: 'give the step "layout": "NCHW"',
  });
}

/**
 * Write the levels of an image, each by its channel, in the order that a model takes.
 *
 * @template {Float32Array | Uint8Array | Int8Array} Made
 * @param {import("./image.js").Image} image
 * @param {boolean} channelsFirst
 * @param {Made} made
 * @param {(level: number, channel: number) => number} of
 * @returns {Made}
 */
export function laidOut({ data, channels }, channelsFirst, made, of) {
  const pixels = data.length / channels;
  for (let channel = 0; channel < channels; channel++) {
    const [start, step] = channelsFirst ? [channel * pixels, 1] : [channel, channels];
    for (let i = 0; i < pixels; i++) made[start + i * step] = of(data[i * channels + channel], channel);
  }
  return made;
}

/** @param {import("./image.js").Image} image @param {boolean} channelsFirst @returns {number[]} The shape of its tensor. */
export function shapeOf({ width, height, channels }, channelsFirst) {
  return channelsFirst ? [channels, height, width] : [height, width, channels];
}
