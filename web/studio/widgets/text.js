/** Texts: one field, or the several that a task takes, such as a question and its context. */

import { linkOf } from "../link.js";
import { h } from "../parts.js";
import { answerViews } from "./answers.js";

/** @typedef {{name: string, label: string, value: string, rows?: number, isList?: boolean}} Field */

/** By task its fields; a task that is not listed takes one text. @type {Record<string, Field[]>} */
const FIELDS = {
  "question-answering": [
    { name: "question", label: "Question", value: "Who keeps the bees?", rows: 1 },
    { name: "context", label: "Text", value: "The village lies by a lake. Anna keeps bees there, and her brother sells the honey.", rows: 5 },
  ],
  "text-ranking": [
    { name: "query", label: "Query", value: "how to keep bees", rows: 1 },
    { name: "documents", label: "Documents, one a line", value: "Bees need flowers.\nA lake is deep.\nHoney is made by bees.", rows: 5, isList: true },
  ],
  "fill-mask": [{ name: "text", label: "Text with [MASK]", value: "The capital of France is [MASK].", rows: 2 }],
};
const LABELS = { name: "candidate_labels", label: "Labels, one a line", value: "sport\npolitics\nscience", rows: 3, isList: true };
const ONE = { name: "text", label: "Text", value: "A quiet film with a fine ending.", rows: 4 };
/** The answer follows the typing after this rest. */
const REST_MS = 250;

/** @type {import("./registry.js").Make} */
export function text(model, state) {
  const fields = FIELDS[model.task] ?? [ONE];
  const areas = new Map([...fields, ...(model.task === "zero-shot-classification" ? [LABELS] : [])].map((field) => [field, areaOf(field)]));
  const answer = h("", h("p.small.quiet", "The answer stands here."));
  let timer = 0;

  const valueOf = (/** @type {Field} */ field) => {
    const typed = /** @type {HTMLTextAreaElement} */ (areas.get(field)).value;
    return field.isList ? typed.split("\n").map((line) => line.trim()).filter(Boolean) : typed;
  };
  const ask = () => {
    const values = fields.map((field) => [field.name, valueOf(field)]);
    const args = model.task === "zero-shot-classification" ? { candidate_labels: valueOf(LABELS) } : {};
    if (values.some(([, value]) => value.length === 0)) return;
    state.ask(fields.length === 1 ? values[0][1] : Object.fromEntries(values), args);
  };
  for (const area of areas.values()) {
    area.addEventListener("input", () => {
      clearTimeout(timer);
      timer = window.setTimeout(ask, REST_MS);
    });
  }
  const stage = h(".stage", h(".view.start", [...areas].map(([{ label }, area]) => h("label.field", label, area))));
  return {
    stage,
    answer,
    show: (found) => answer.replaceChildren(...answerViews(found)),
    ready: () => state.hasInput || ask(),
    link: linkOf([...areas.values()]),
    leave: () => clearTimeout(timer),
  };
}

/** @param {Field} field @returns {HTMLTextAreaElement} */
function areaOf({ value, rows }) {
  return /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: rows ?? 3 }, value));
}
