/** The step `post.image`: an image that a model gives, as pixels. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { flat, roundEven } from "../values.js";
import { reader } from "./outputs.js";

/**
 * A number becomes `number * scale + offset`, rounded to float32 after each, then to a whole number, half to even, and
 * limited to 0 to 255, as transformers' image-to-image pipeline does; NaN becomes 0.
 *
 * @param {{tensor: string | null, layout: "CHW" | "HWC", scale: number, offset: number}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name, layout, scale, offset }, place) {
  const read = reader(name, place, "post.image");
  const [factor, added] = [Math.fround(scale), Math.fround(offset)];
  return (value) => {
    const tensor = read(value);
    const isFirst = layout === "CHW";
    const own = tensor.shape;
    const shape = own.length !== 2 ? own : isFirst ? [1, ...own] : [...own, 1];
    const channels = shape.length === 3 ? shape[isFirst ? 0 : 2] : 0;
    if (channels !== 1 && channels !== 3) {
      throw new EdgeInferError(`the output has shape ${shapeText(own)}, expected an image of 1 or 3 channels as \`${layout}\``, "execution_error", {
        hint: "choose another `layout`, or name the output that holds the image: `tensor`",
      });
    }
    const [height, width] = isFirst ? shape.slice(1) : shape;
    const numbers = flat(tensor);
    const data = new Uint8Array(numbers.length);
    const count = width * height;
    for (let i = 0; i < numbers.length; i++) {
      const level = Math.fround(Math.fround(Math.fround(numbers[i]) * factor) + added);
      const at = isFirst ? (i % count) * channels + Math.trunc(i / count) : i;
      data[at] = Number.isNaN(level) ? 0 : roundEven(Math.min(Math.max(level, 0), 255));
    }
    return { data, width, height, channels };
  };
}
