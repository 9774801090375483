/** One linear layer without an engine, for the smallest of classifiers: the same bits as `edge_infer.MiniModel`. */

import { EdgeInferError } from "../errors.js";
import { cosineSimilarity } from "./similarity.js";

const MAX = 2 ** 24;

export class MiniModel {
  #weights;
  #bias;

  /**
   * @param {number} inputs The numbers that it takes.
   * @param {number} outputs The numbers that it gives.
   * @throws {EdgeInferError} `input_error`: they are no whole numbers from 1 on, or there are more than 2^24 weights.
   */
  constructor(inputs, outputs) {
    for (const [name, value] of Object.entries({ inputs, outputs })) {
      if (!Number.isInteger(value) || value < 1 || value > MAX) throw wrong(`\`${name}\` is ${value}, expected a whole number from 1 on`, "new MiniModel(128, 10)");
    }
    if (inputs * outputs > MAX) throw wrong(`${inputs} x ${outputs} weights are too many`, "load(url) runs larger models");
    this.inputs = inputs;
    this.outputs = outputs;
    this.#weights = new Float32Array(inputs * outputs);
    this.#bias = new Float32Array(outputs);
  }

  /**
   * Take the weights, output by output, and behind them the bias of each output where there is one.
   *
   * @param {ArrayLike<number>} weights `inputs * outputs` numbers, or `outputs` more.
   * @throws {EdgeInferError} `input_error`: there are more or fewer, or one is not finite; the old ones stay.
   */
  load_weights(weights) {
    const found = floats(weights);
    const size = this.inputs * this.outputs;
    if (found.length !== size && found.length !== size + this.outputs) {
      throw wrong(`there are ${found.length} weights, expected ${size}, or ${size + this.outputs} with a bias`, "give them output by output");
    }
    this.#weights = found.slice(0, size);
    this.#bias = found.length > size ? found.slice(size) : new Float32Array(this.outputs);
  }

  /** @param {ArrayLike<number>} weights As `load_weights` takes them. */
  loadWeights(weights) {
    this.load_weights(weights);
  }

  /**
   * @param {ArrayLike<number>} values As many numbers as the model takes.
   * @returns {Float32Array} The outputs: each added up in double precision, from the bias over the first to the last input.
   * @throws {EdgeInferError} `input_error`: there are more or fewer, or one is not finite.
   */
  predict(values) {
    const given = floats(values);
    if (given.length !== this.inputs) throw wrong(`there are ${given.length} numbers, the model takes ${this.inputs}`, "give one vector");
    return this.#bias.map((bias, place) => {
      let total = bias;
      for (let i = 0; i < this.inputs; i++) total += this.#weights[place * this.inputs + i] * given[i];
      return total;
    });
  }

  /** @param {ArrayLike<number>} first @param {ArrayLike<number>} second @returns {number} The cosine of the angle between them. */
  static cosine_similarity(first, second) {
    return cosineSimilarity(first, second);
  }
}

/** @param {ArrayLike<number>} values @returns {Float32Array} */
function floats(values) {
  const found = Float32Array.from(values);
  if (!found.every(Number.isFinite)) throw wrong("one of the numbers is not finite in float32", "give finite numbers");
  return found;
}

/** @param {string} message @param {string} hint */
function wrong(message, hint) {
  return new EdgeInferError(message, "input_error", { hint });
}
