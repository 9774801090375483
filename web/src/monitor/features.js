/** The features of tensors: columns, the best class, projections. The same as `edge_infer.monitor.features`. */

import { EdgeInferError } from "../errors.js";
import { flat, roundEven } from "../tasks/values.js";
import { SIDE } from "./reference.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("./reference.js").Group} Group */
/** @typedef {import("./reference.js").Reference} Reference */

/** A rounded number is at most so far from zero, so that sums stay exact. */
const LIMIT = 2 ** 15;
const AGAIN = "edge-infer monitor reference BUNDLE DATA makes the reference again";

/**
 * @param {Reference} reference
 * @param {Record<string, Tensor>} inputs
 * @param {Record<string, Tensor>} outputs
 * @returns {number[][]} The values of each feature, in the reference's order; none where a tensor is absent.
 * @throws {EdgeInferError} `input_error`: a tensor has another shape than the reference's data.
 */
export function columnsOf({ groups, directions }, inputs, outputs) {
  let place = 0;
  return groups.flatMap((group) => {
    const isProjected = group.take === "vector" || group.take === "image";
    const own = isProjected ? directions.slice(place, place + group.names.length) : [];
    place += own.length;
    const tensor = (group.of === "inputs" ? inputs : outputs)[group.tensor];
    return tensor ? columns(group, tensor, own) : group.names.map(() => []);
  });
}

/** @param {Group} group @param {Tensor} tensor @param {number[][]} directions @returns {number[][]} */
function columns(group, tensor, directions) {
  const values = flat(tensor);
  const count = tensor.shape[0] ?? 1;
  const width = count ? values.length / count : 0;
  const rows = Array.from({ length: count }, (_, i) => Array.from({ length: width }, (_, j) => values[i * width + j]));
  if (directions.length) {
    const scaled = rows.map((row) => scaledRow(row, group, tensor.shape));
    if (scaled.length && scaled[0].length !== directions[0].length) {
      throw new EdgeInferError(`the monitor watches vectors of ${directions[0].length} numbers, got ${scaled[0].length}`, "input_error", { hint: AGAIN });
    }
    return directions.map((one) => scaled.map((row) => row.reduce((sum, value, i) => sum + value * one[i], 0)));
  }
  if (group.take === "best") {
    const best = rows.map((row) => row.reduce((found, value, i) => (value > row[found] ? i : found), 0));
    return [best, rows.map((row, i) => row[best[i]])];
  }
  if (width !== group.names.length && count) {
    throw new EdgeInferError(`the monitor watches ${group.names.length} columns of \`${group.tensor}\`, got ${width}`, "input_error", { hint: AGAIN });
  }
  return group.names.map((_, i) => rows.map((row) => row[i]));
}

/** @param {number[]} row @param {Group} group @param {readonly number[]} shape @returns {number[]} Whole numbers. */
function scaledRow(row, group, shape) {
  const numbers = row.map((one) => (Number.isFinite(one) ? Math.min(Math.max(roundEven(one * group.scale), -LIMIT), LIMIT) : 0));
  if (group.take === "vector") return numbers;
  if (shape.length !== 4) throw new EdgeInferError(`the monitor watches images, and the tensor has shape [${shape}]`, "input_error", { hint: AGAIN });
  const isFirst = [1, 3, 4].includes(shape[1]) && ![1, 3, 4].includes(shape[3]);
  const [channels, height, width] = isFirst ? shape.slice(1) : [shape[3], shape[1], shape[2]];
  const cells = new Array(SIDE * SIDE).fill(0);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = Math.floor((y * SIDE) / height) * SIDE + Math.floor((x * SIDE) / width);
      for (let channel = 0; channel < channels; channel++) {
        cells[at] += numbers[isFirst ? (channel * height + y) * width + x : (y * width + x) * channels + channel];
      }
    }
  }
  return cells;
}
