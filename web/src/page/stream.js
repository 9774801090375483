/** Runs of a model that carry state from step to step: what `edge_infer.runtime.session.Stream` is in Python. */

import { EdgeInferError } from "../errors.js";
import { DTYPES, arrayOver, nbytesOf } from "../tensors.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {{kind: "hidden" | "pair", out?: string, in?: string}} State */
/** @typedef {(inputs: Record<string, unknown>, options: {signal?: AbortSignal}) => Promise<Record<string, Tensor>>} Run */
/**
 * @typedef {object} StreamOptions
 * @property {Record<string, string>} [state] Which output becomes which input of the next step; unless given, what the
 *   bundle's manifest names.
 * @property {Record<string, Tensor>} [initial] The first value of inputs that are state; zeros where their shape is fixed.
 */

/** Runs of a model step by step; made by `Session.stream`. */
export class Stream {
  /** @type {Run | undefined} */
  #run;
  #pairs;
  #onClose;
  /** @type {Record<string, Tensor>} */
  #held;
  /** Steps come one after the other. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {Run} run
   * @param {Record<string, string>} pairs
   * @param {Record<string, Tensor>} held The first value of each state.
   * @param {() => void} [onClose] Gives back what the stream holds in the engine.
   */
  constructor(run, pairs, held, onClose = () => {}) {
    this.#onClose = onClose;
    this.#run = run;
    this.#pairs = pairs;
    this.#held = held;
  }

  /**
   * Run one step. Steps that are asked for before the last one has ended wait for it.
   *
   * @param {Record<string, unknown>} inputs The inputs that are not state.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Record<string, Tensor>>} The outputs that are not state.
   * @throws {EdgeInferError} `input_error` where an input does not fit, or is state; where a step fails, the state stays as it was.
   */
  step(inputs, { signal } = {}) {
    const result = this.#last.then(() => this.#step(inputs, signal));
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {Record<string, unknown>} inputs @param {AbortSignal} [signal] */
  async #step(inputs, signal) {
    const run = this.#run;
    if (!run) throw new EdgeInferError("The stream is closed", "input_error", { hint: "open another: session.stream()" });
    const own = Object.keys(inputs).find((name) => name in this.#held);
    if (own !== undefined) throw new EdgeInferError(`Input \`${own}\` is a state of this stream, which feeds it itself`, "input_error");
    const results = await run({ ...inputs, ...this.#held }, { signal });
    const entries = Object.entries(results);
    this.#held = Object.fromEntries(Object.entries(this.#pairs).map(([output, input]) => [input, results[output]]));
    return Object.fromEntries(entries.filter(([name]) => !(name in this.#pairs)));
  }

  /** @returns {Record<string, Tensor>} The state by input: `initial` of a stream that goes on from here. */
  state() {
    return { ...this.#held };
  }

  /** End the stream; the session runs on. */
  close() {
    if (this.#run) this.#onClose();
    this.#run = undefined;
    this.#held = {};
  }
}

/**
 * Make a stream.
 *
 * @param {Run} run Runs the model once.
 * @param {{inputs: readonly TensorSpec[], outputs: readonly TensorSpec[], state: readonly State[]}} model
 * @param {StreamOptions} [options]
 * @param {() => void} [onClose] Gives back what the stream holds in the engine.
 * @returns {Stream}
 * @throws {EdgeInferError} `input_error`: a name is unknown, a state of free shape has no first value, or no state is known.
 */
export function streamOf(run, { inputs, outputs, state: known }, { state, initial = {} } = {}, onClose = undefined) {
  const named = known.filter(({ kind }) => kind === "pair").map(({ out, in: into }) => /** @type {[string, string]} */ ([out, into]));
  const pairs = state ?? Object.fromEntries(named);
  if (Object.keys(pairs).length === 0 && !known.some(({ kind }) => kind === "hidden")) {
    throw new EdgeInferError("stream() needs to know which output becomes which input", "input_error", {
      hint: 'session.stream({ state: { h_out: "h_in" } })',
    });
  }
  for (const [names, specs, kind] of /** @type {const} */ ([
    [Object.keys(pairs), outputs, "output"],
    [Object.values(pairs), inputs, "input"],
    [Object.keys(initial), inputs.filter(({ name }) => Object.values(pairs).includes(name)), "state"],
  ])) {
    const unknown = names.find((name) => !specs.some((spec) => spec.name === name));
    if (unknown !== undefined) {
      const choices = specs.map(({ name }) => `\`${name}\``).join(", ");
      throw new EdgeInferError(`There is no ${kind} \`${unknown}\`; choose from ${choices}`, "input_error");
    }
  }
  if (new Set(Object.values(pairs)).size < Object.keys(pairs).length) {
    throw new EdgeInferError("Two outputs become one input", "input_error", { hint: "name each input once" });
  }
  const specs = inputs.filter(({ name }) => Object.values(pairs).includes(name));
  return new Stream(run, pairs, Object.fromEntries(specs.map((spec) => [spec.name, initial[spec.name] ?? zeros(spec)])), onClose);
}

/**
 * @param {TensorSpec} spec
 * @returns {Tensor}
 */
function zeros(spec) {
  const shape = /** @type {number[]} */ (spec.shape.filter((dim) => typeof dim === "number"));
  if (shape.length < spec.shape.length || DTYPES[spec.dtype].bits === 0) {
    throw new EdgeInferError(`State \`${spec.name}\` has no fixed shape of numbers, expected a first value`, "input_error", {
      hint: `session.stream({ initial: { ${spec.name}: ... } })`,
    });
  }
  return { data: arrayOver(spec.dtype, new Uint8Array(nbytesOf(spec.dtype, shape))), dtype: spec.dtype, shape };
}
