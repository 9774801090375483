/** The tasks, by the names that transformers gives them. */

import { EdgeInferError } from "../errors.js";
import { TASKS } from "./parameters.js";
import { bestAnswers, byEntailment, byRelevance, hypotheses, queryAndDocuments, questionAndContext } from "./several-runs.js";
import { answerOf, rowsOf } from "./tabular/rows.js";
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

/** Tasks that run their model several times, or combine its answers. @type {Record<string, Pick<Task, "expand" | "combine">>} */
const SEVERAL_RUNS = {
  "tabular-classification": { expand: rowsOf, combine: answerOf },
  "tabular-regression": { expand: rowsOf, combine: answerOf },
  "question-answering": { expand: questionAndContext, combine: bestAnswers },
  "zero-shot-classification": { expand: hypotheses, combine: byEntailment },
  "text-ranking": { expand: queryAndDocuments, combine: byRelevance },
};
/** @type {Map<string, Task>} */
const tasks = new Map();
for (const [name, declared] of Object.entries(TASKS)) tasks.set(name, { name, ...declared, ...SEVERAL_RUNS[name] });

/** @param {Task} task */
export function register(task) {
  tasks.set(task.name, task);
}

/**
 * @param {string} name
 * @returns {Task}
 * @throws {EdgeInferError} `input_error`: there is none of this name.
 */
export function getTask(name) {
  const found = tasks.get(name);
  if (found) return found;
  const known = [...tasks.keys()].sort();
  throw new EdgeInferError(`there is no task \`${name}\``, "input_error", {
    hint: didYouMean(name, known) || `choose from ${listed(known)}`,
    details: { allowed: known },
  });
}
