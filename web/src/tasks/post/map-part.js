/** The part of a model's map that the image fills: without what a letterbox added. */

import { roundEven } from "../values.js";

/** @typedef {import("../item.js").Item} Item */
/** @typedef {import("./scores.js").Part} Part */

/** @param {number} width @param {number} height @param {Item} item @returns {Part} What of the model's map the image fills, without a letterbox. */
export function partOf(width, height, item) {
  let part = { left: 0, top: 0, right: width, bottom: height };
  for (const step of item.geometry.toReversed()) {
    if (!(step.left > 0 || step.top > 0 || step.scaleX === step.scaleY)) continue;
    const [ratioX, ratioY] = [width / (item.inputWidth || width), height / (item.inputHeight || height)];
    const [left, top] = [Math.max(roundEven(step.left * ratioX), 0), Math.max(roundEven(step.top * ratioY), 0)];
    const right = Math.min(width, roundEven((step.left + item.width * step.scaleX) * ratioX));
    const bottom = Math.min(height, roundEven((step.top + item.height * step.scaleY) * ratioY));
    part = { left, top, right, bottom };
  }
  return part;
}
