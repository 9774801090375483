/** The step `image.resize`: an image in another size, as Pillow resizes it. */

import { EdgeInferError } from "../../errors.js";
import { roundEven } from "../values.js";
import { listed } from "../words.js";
import { resized } from "./resampling.js";

/** @typedef {import("./image.js").Image} Image */

const MAX_SIDE = 16_384;

/**
 * Either to `width` x `height`, or, keeping the proportions, to a `shortest` or `longest` side, or to a `shortest` side
 * unless the other gets longer than `longest`. The other side is cut to a whole number, as in torchvision and transformers.
 * With `multiple` the one of `width` and `height` decides that changes the size less, and both sides are rounded to
 * multiples, as DPT's processor does.
 *
 * @param {{width: number | null, height: number | null, shortest: number | null, longest: number | null, multiple: number | null,
 *   filter: string, order: string}} parameters
 * @returns {import("../item.js").Apply}
 * @throws {EdgeInferError} `manifest_error`: the size is not given in one of these ways.
 */
export function prepare({ width, height, shortest, longest, multiple, filter, order }) {
  const isExact = width !== null && height !== null;
  if (isExact === (shortest !== null || longest !== null) || (width === null) !== (height === null)) {
    const given = listed(Object.entries({ width, height, shortest, longest }).flatMap(([name, value]) => (value === null ? [] : [name])));
    throw new EdgeInferError(`pipeline: \`image.resize\` is given ${given}, expected \`width\` and \`height\`, or \`shortest\` and/or \`longest\``, "manifest_error", {
      hint: '{"step": "image.resize", "width": 224, "height": 224}',
    });
  }
  if (multiple !== null && !isExact) {
    throw new EdgeInferError("pipeline: `image.resize` has `multiple` without `width` and `height`, expected all three or no `multiple`", "manifest_error", {
      hint: `"width": 384, "height": 384, "multiple": ${multiple}`,
      details: { field: "multiple" },
    });
  }
  return (/** @type {Image} */ image, item) => {
    const exact = isExact && multiple !== null ? multiples(image, width, height, multiple) : [width ?? 0, height ?? 0];
    const to = isExact ? exact : proportional(image.width, image.height, shortest, longest);
    if (Math.max(...to) > MAX_SIDE) {
      throw new EdgeInferError(`an image of ${image.width} x ${image.height} pixels would be resized to ${to[0]} x ${to[1]}`, "input_error", {
        hint: `give one of less extreme proportions: no side may get longer than ${MAX_SIDE}`,
      });
    }
    item.geometry.push({ scaleX: to[0] / image.width, scaleY: to[1] / image.height, left: 0, top: 0 });
    return resized(image, to[0], to[1], filter, order);
  };
}

/** @param {Image} image @param {number} width @param {number} height @param {number} multiple @returns {[number, number]} */
function multiples(image, width, height, multiple) {
  const [across, down] = [width / image.width, height / image.height];
  const scale = Math.abs(1 - across) < Math.abs(1 - down) ? across : down;
  /** @param {number} side */
  const rounded = (side) => Math.max(roundEven((scale * side) / multiple) * multiple, multiple);
  return [rounded(image.width), rounded(image.height)];
}

/** @param {number} width @param {number} height @param {number | null} shortest @param {number | null} longest @returns {[number, number]} */
function proportional(width, height, shortest, longest) {
  const [short, long] = [Math.min(width, height), Math.max(width, height)];
  let [newShort, newLong] = [0, longest ?? 0];
  if (shortest === null) {
    newShort = Math.trunc((newLong * short) / long);
  } else {
    [newShort, newLong] = [shortest, Math.trunc((shortest * long) / short)];
    if (longest !== null && newLong > longest) [newShort, newLong] = [Math.trunc((longest * newShort) / newLong), longest];
  }
  newShort = Math.max(newShort, 1);
  return width <= height ? [newShort, newLong] : [newLong, newShort];
}
