/** Tasks whose one input takes several runs of the model, or another form than its text. */

import { EdgeInferError } from "../errors.js";
import { byScore, flat } from "./values.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {Record<string, any>} Arguments */

const TEMPLATE = "This example is {}.";
const MAX_RUNS = 10_000;

/**
 * @param {any[]} answers Those of a context's windows: of one that two windows give the higher score counts.
 * @returns {any} The best.
 */
export function bestAnswers(answers) {
  if (answers.length === 1) return answers[0];
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const one of answers.flat().sort((one, other) => other.score - one.score)) {
    const key = `${one.start} ${one.end}`;
    if (!found.has(key)) found.set(key, one);
  }
  const best = [...found.values()];
  return Array.isArray(answers[0]) ? best.slice(0, Math.max(...answers.map(({ length }) => length))) : best[0];
}

/** @param {any} value @returns {any[]} `{question, context}` as a pair of texts. */
export function questionAndContext(value) {
  const { question, context } = value ?? {};
  if (typeof question !== "string" || typeof context !== "string") {
    throw new EdgeInferError("a question is asked of a context", "input_error", { hint: '{question: "...", context: "..."}' });
  }
  return [[question, context]];
}

/** @param {any} value @param {Arguments} args @returns {any[]} A pair of the text and a hypothesis for each candidate label. */
export function hypotheses(value, args) {
  const labels = candidates(args);
  const template = args.hypothesis_template || TEMPLATE;
  if (typeof template !== "string" || !template.includes("{}")) {
    throw new EdgeInferError(`\`hypothesis_template\` is ${JSON.stringify(template)}, without {} for the label`, "input_error", { hint: TEMPLATE });
  }
  if (typeof value !== "string") {
    throw new EdgeInferError(`a ${typeof value} is not a text`, "input_error", { hint: "give a text, or a list of texts" });
  }
  return labels.map((label) => [value, template.split("{}").join(label)]);
}

/**
 * The scores of one label are softmaxes of entailment over the labels; with `multi_label` of entailment against
 * contradiction for each label, as in transformers' `ZeroShotClassificationPipeline`.
 *
 * @param {Tensor[]} answers
 * @param {string} value
 * @param {Arguments} args
 * @param {import("./place.js").Place} place
 * @returns {{sequence: string, labels: string[], scores: number[]}} The best label first.
 */
export function byEntailment(answers, value, args, place) {
  const names = place.labels.map((label) => label.toLowerCase());
  const entailment = names.findIndex((name) => name.startsWith("entail"));
  if (entailment < 0) {
    throw new EdgeInferError(`pipeline: the labels ${JSON.stringify(place.labels)} hold no \`entailment\``, "manifest_error", {
      hint: "convert a model trained on NLI",
    });
  }
  const labels = candidates(args);
  const logits = answers.map((answer) => flat(answer));
  /** @type {number[]} */
  let scores;
  if (args.multi_label || labels.length === 1) {
    const found = names.findIndex((name) => name.startsWith("contra"));
    scores = logits.map((row) => {
      const other = found >= 0 ? found : entailment ? 0 : row.length - 1;
      return 1 / (1 + Math.exp(row[other] - row[entailment]));
    });
  } else {
    const highest = logits.reduce((most, row) => Math.max(most, row[entailment]), -Infinity);
    const powers = logits.map((row) => Math.exp(row[entailment] - highest));
    const total = powers.reduce((sum, power) => sum + power, 0);
    scores = powers.map((power) => power / total);
  }
  const order = byScore(labels.length, (i) => scores[i]);
  return { sequence: value, labels: order.map((i) => labels[i]), scores: order.map((i) => scores[i]) };
}

/** @param {Arguments} args @returns {string[]} */
function candidates({ candidate_labels: given }) {
  const labels = typeof given === "string" ? given.split(",").map((label) => label.trim()).filter(Boolean) : given;
  if (!Array.isArray(labels) || labels.length < 1 || labels.length > MAX_RUNS) {
    throw new EdgeInferError("there are no labels to choose from", "input_error", { hint: '{candidate_labels: ["sport", "politics"]}' });
  }
  return labels.map(String);
}

/** @param {any} value @returns {any[]} A pair of the query and each document. */
export function queryAndDocuments(value) {
  const { query, documents } = value ?? {};
  const isList = Array.isArray(documents) && documents.every((one) => typeof one === "string");
  if (typeof query !== "string" || !isList || documents.length < 1 || documents.length > MAX_RUNS) {
    throw new EdgeInferError("documents are ranked for a query", "input_error", { hint: '{query: "...", documents: ["...", "..."]}' });
  }
  return documents.map((document) => [query, document]);
}

/**
 * @param {Tensor[]} answers
 * @param {any} value
 * @param {Arguments} args
 * @returns {{corpus_id: number, score: number, text: string}[]} The best document first, as sentence-transformers' `rank` does.
 */
export function byRelevance(answers, value, args) {
  const scores = answers.map((answer) => flat(answer)[0]);
  const order = byScore(scores.length, (i) => scores[i]);
  const found = order.map((i) => ({ corpus_id: i, score: scores[i], text: value.documents[i] }));
  return found.slice(0, args.top_k || found.length);
}
