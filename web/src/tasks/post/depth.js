/** The step `post.depth`: a map of depths in the size of the image, and a picture of it. */

import { EdgeInferError } from "../../errors.js";
import { shapeText } from "../../tensors.js";
import { flat, floats } from "../values.js";
import { resizedMap } from "./cubic.js";
import { partOf } from "./map-part.js";
import { reader } from "./outputs.js";

/** The most pixels of a map: 200 MB of numbers. */
const MAX_PIXELS = 25_000_000;

/**
 * It gives `{predicted_depth, depth}`, as transformers' pipeline does: a tensor [height, width] of the original image,
 * resized by cubic convolution, and a grey image of it, 0 where it is least and 255 where it is most. What a letterbox added
 * is cut.
 *
 * @param {{tensor: string | null}} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare({ tensor: name }, place) {
  const read = reader(name, place, "post.depth");
  return (value, item) => {
    const tensor = read(value);
    const sizes = tensor.shape.length > 2 ? tensor.shape.filter((size) => size !== 1) : tensor.shape;
    if (sizes.length !== 2) {
      throw new EdgeInferError(`the output has shape ${shapeText(tensor.shape)}, expected [height, width]`, "execution_error", {
        hint: "name the output that holds depths: `tensor`",
      });
    }
    const [mapHeight, mapWidth] = sizes;
    const { width, height } = item;
    if (width * height > MAX_PIXELS) {
      throw new EdgeInferError(`a map of ${width} x ${height} depths has more than ${MAX_PIXELS} pixels`, "input_error", {
        hint: "give a smaller image",
      });
    }
    const numbers = resizedMap(flat(tensor), mapWidth, partOf(mapWidth, mapHeight, item), width, height);
    const depths = floats(numbers, [height, width]);
    return { predicted_depth: depths, depth: { data: grey(flat(depths)), width, height, channels: 1 } };
  };
}

/** @param {ArrayLike<number>} values @returns {Uint8Array} Spread over 0 to 255; the fraction is cut. */
function grey(values) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) return new Uint8Array(values.length);
    low = Math.min(low, values[i]);
    high = Math.max(high, values[i]);
  }
  if (!(high > low)) return new Uint8Array(values.length);
  return Uint8Array.from({ length: values.length }, (_, i) => Math.trunc(((values[i] - low) / (high - low)) * 255));
}
