/** The tasks, by the names that transformers gives them. */

import { InferError } from "../errors.js";
import { byEntailment, byRelevance, hypotheses, only, queryAndDocuments, questionAndContext } from "./several-runs.js";
import { didYouMean, listed } from "./words.js";

/** @typedef {import("./place.js").Place} Place */
/**
 * @typedef {object} Task What a pipeline is for.
 * @property {string} name Such as `image-classification`.
 * @property {"image" | "sound" | "text" | "table"} takes The kind of its raw input.
 * @property {string[]} [args] What the caller may give besides the arguments of the steps.
 * @property {(value: any, args: Record<string, any>) => any[]} [expand] Gives the raw inputs that one of the task takes: a
 *   run of the model for each. One run without it.
 * @property {(answers: any[], value: any, args: Record<string, any>, place: Place) => any} [combine] Gives the answer from
 *   those of the runs.
 */

/** @type {Map<string, Task>} */
const tasks = new Map();

/** @param {Task} task */
export function register(task) {
  tasks.set(task.name, task);
}

/**
 * @param {string} name
 * @returns {Task}
 * @throws {InferError} `input_error`: there is none of this name.
 */
export function getTask(name) {
  const found = tasks.get(name);
  if (found) return found;
  const known = [...tasks.keys()].sort();
  throw new InferError(`there is no task \`${name}\``, "input_error", {
    hint: didYouMean(name, known) || `choose from ${listed(known)}`,
    details: { allowed: known },
  });
}

for (const name of [
  "depth-estimation",
  "image-classification",
  "image-feature-extraction",
  "image-segmentation",
  "image-to-image",
  "keypoint-detection",
  "object-detection",
]) {
  register({ name, takes: "image" });
}
for (const name of ["audio-classification", "voice-activity-detection"]) register({ name, takes: "sound" });
for (const name of ["feature-extraction", "fill-mask", "text-classification", "token-classification"]) register({ name, takes: "text" });
register({ name: "question-answering", takes: "text", expand: questionAndContext, combine: only });
register({
  name: "zero-shot-classification",
  takes: "text",
  args: ["candidate_labels", "hypothesis_template", "multi_label"],
  expand: hypotheses,
  combine: byEntailment,
});
register({ name: "text-ranking", takes: "text", args: ["top_k"], expand: queryAndDocuments, combine: byRelevance });
