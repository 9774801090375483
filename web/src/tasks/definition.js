/** The definition of a pipeline: what a bundle's manifest says in `task` and `pipeline`. */

import { EdgeInferError } from "../errors.js";
import { isObject } from "./check-parameters.js";
import { getTask } from "./registry.js";
import { checkFlow, readStep } from "./steps.js";
import { shown } from "./words.js";

/** @typedef {import("./steps.js").Step} Step */
/**
 * @typedef {object} Definition What is done before and after a model.
 * @property {string} task Such as `image-classification`.
 * @property {Record<string, Step[]>} inputs By input of the model the steps that make it; `*` for steps that make several.
 * @property {Step[]} outputs The steps from the model's outputs to the answer.
 * @property {string} source Where the definition was found, such as `tflite-metadata`; empty where nobody says.
 * @property {string | null} vectors The path of the file of vectors that prove it; null where there is none.
 */

/** The version of the format; another one is refused. */
export const VERSION = 1;
/** A chain that makes all inputs of the model at once, such as the tokens of a text. */
export const ALL_INPUTS = "*";
const MAX_STEPS = 64;
/** A chain that can be typed in the place of none, by what it begins with. */
const BEGINNINGS = {
  raw: '[{"step": "image.decode"}, {"step": "image.to_tensor"}]',
  outputs: '[{"step": "post.tensor"}]',
};

/**
 * @param {Record<string, any>} manifest
 * @returns {Definition} The definition that it holds.
 * @throws {EdgeInferError} `unsupported`: it holds none. `manifest_error`: it is wrong.
 */
export function definitionOf({ name, task, pipeline }) {
  if (task === undefined || pipeline === undefined) {
    throw new EdgeInferError(`\`${name}\` does not say what stands before and after the model`, "unsupported", {
      hint: "edge-infer convert MODEL --task image-classification --labels FILE -o model.bundle",
    });
  }
  return readDefinition(task, pipeline);
}

/**
 * Read a definition from the JSON of a manifest.
 *
 * @param {unknown} task
 * @param {unknown} document
 * @returns {Definition}
 * @throws {EdgeInferError} `manifest_error`: it is of another version, or wrong; the message names the step and the parameter.
 *   `input_error`: there is no such task.
 */
export function readDefinition(task, document) {
  if (typeof task !== "string" || !isObject(document)) {
    const hint = "edge-infer convert MODEL --task image-classification -o model.bundle";
    throw wrong(`manifest: \`task\` is ${shown(task)}, and \`pipeline\` ${shown(document)}, expected a text and an object`, hint);
  }
  getTask(task);
  const { version, inputs, outputs, source = "", vectors = null } = document;
  if (version !== VERSION) {
    throw new EdgeInferError(`pipeline: version ${JSON.stringify(version)}, this edge-infer reads ${VERSION}`, "manifest_error", {
      hint: "update edge-infer",
      details: { got: version, is_newer: true },
    });
  }
  if (!isObject(inputs) || Object.keys(inputs).length === 0) {
    const hint = `"inputs": {"NAME": ${BEGINNINGS.raw}}`;
    throw wrong(`pipeline: \`inputs\` is ${shown(inputs ?? null)}, expected an object of lists of steps, by the model's inputs`, hint, "inputs");
  }
  if (typeof source !== "string") throw wrong(`pipeline: \`source\` is ${shown(source)}, expected a text`, 'leave "source" out', "source");
  if (vectors !== null && typeof vectors !== "string") {
    throw wrong(`pipeline: \`vectors\` is ${shown(vectors)}, expected a text`, 'leave "vectors" out', "vectors");
  }
  const chains = Object.entries(inputs).map(([name, steps]) => {
    const ends = name === ALL_INPUTS ? ["tensors"] : ["tensor", "frames"];
    return [name, chain(steps, "raw", ends, `pipeline.inputs['${name}']`)];
  });
  const answers = chain(outputs, "outputs", ["answer", "tensor"], "pipeline.outputs");
  return { task, inputs: Object.fromEntries(chains), outputs: answers, source, vectors };
}

/** @param {Definition} definition @returns {Step[][]} All chains of steps. */
export function chainsOf({ inputs, outputs }) {
  return [...Object.values(inputs), outputs];
}

/** @param {Definition} definition @returns {Set<string>} What the caller of the pipeline may give, such as `top_k`. */
export function argumentsOf(definition) {
  const declared = chainsOf(definition).flatMap((steps) => steps.flatMap((step) => Object.entries(step.declared)));
  return new Set(declared.filter(([, one]) => one.argument).map(([name]) => name));
}

/** @param {unknown} steps @param {"raw" | "outputs"} begins @param {string[]} ends @param {string} where @returns {Step[]} */
function chain(steps, begins, ends, where) {
  if (!Array.isArray(steps) || steps.length < 1 || steps.length > MAX_STEPS) {
    const found = Array.isArray(steps) ? `a list of ${steps.length} steps` : shown(steps ?? null);
    throw wrong(`${where} is ${found}, expected a list of 1 to ${MAX_STEPS} steps`, `write ${BEGINNINGS[begins]}`);
  }
  const found = steps.map((step, i) => readStep(step, `${where}[${i}]`));
  checkFlow(found, begins, ends, where);
  return found;
}

/** @param {string} message @param {string} hint @param {string} [field] */
function wrong(message, hint, field) {
  return new EdgeInferError(message, "manifest_error", { hint, details: field === undefined ? {} : { field } });
}
