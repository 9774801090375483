/** Two small functions on vectors: how alike two are, and rows of length 1. */

import { EdgeInferError } from "../errors.js";

/**
 * @param {ArrayLike<number>} first
 * @param {ArrayLike<number>} second As many numbers.
 * @returns {number} The cosine of the angle between them; 0 where one is zero.
 * @throws {EdgeInferError} `input_error`: they are of different lengths.
 */
export function cosineSimilarity(first, second) {
  if (first.length !== second.length) {
    throw new EdgeInferError(`The vectors have ${first.length} and ${second.length} numbers`, "input_error", { hint: "compare vectors of one length" });
  }
  let [dot, one, other] = [0, 0, 0];
  for (let i = 0; i < first.length; i++) {
    dot += first[i] * second[i];
    one += first[i] * first[i];
    other += second[i] * second[i];
  }
  return one === 0 || other === 0 ? 0 : Math.max(-1, Math.min(1, dot / (Math.sqrt(one) * Math.sqrt(other))));
}

/**
 * @param {ArrayLike<number>[]} vectors Of one length.
 * @returns {number[][]} Vectors of length 1 in the same directions; a zero vector stays zero.
 * @throws {EdgeInferError} `input_error`: they are of different lengths.
 */
export function batchNormalize(vectors) {
  return vectors.map((vector, number) => {
    if (vector.length !== vectors[0].length) {
      throw new EdgeInferError(`Vector ${number} has ${vector.length} numbers, the first has ${vectors[0].length}`, "input_error", { hint: "give vectors of one length" });
    }
    let total = 0;
    for (let i = 0; i < vector.length; i++) total += vector[i] * vector[i];
    const length = Math.sqrt(total) || 1;
    return Array.from(vector, (value) => value / length);
  });
}
