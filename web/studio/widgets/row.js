/** A row of a table: a field for each column. */

import { linkOf } from "../link.js";
import { h } from "../parts.js";
import { answerViews } from "./answers.js";

const REST_MS = 250;

/** @type {import("./registry.js").Make} */
export function row(model, state) {
  const answer = h("", h("p.small.quiet", "The answer stands here."));
  let timer = 0;
  const fields = model.columns.map((column) => ({ ...column, input: fieldOf(column) }));
  const ask = () => state.ask(Object.fromEntries(fields.map(({ name, type, input }) => [name, valueOf(input.value, type)])));
  const stage = h(".stage", h(".view.start", h(".fields", fields.map(({ name, input }) => h("label.field", name, input)))));
  stage.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(ask, REST_MS);
  });
  return {
    stage,
    answer,
    show: (found) => answer.replaceChildren(...answerViews(found)),
    ready: () => state.hasInput || ask(),
    link: linkOf(fields.map(({ input }) => input)),
    leave: () => clearTimeout(timer),
  };
}

/** @param {import("../catalog.js").Column} column @returns {HTMLInputElement | HTMLSelectElement} */
function fieldOf({ type, categories }) {
  if (categories.length) return /** @type {HTMLSelectElement} */ (h("select", categories.map((one) => h("option", { value: String(one) }, String(one))), h("option", { value: "" }, "(missing)")));
  if (type === "bool") return /** @type {HTMLSelectElement} */ (h("select", h("option", { value: "false" }, "false"), h("option", { value: "true" }, "true")));
  if (type === "string") return /** @type {HTMLInputElement} */ (h("input", { type: "text" }));
  return /** @type {HTMLInputElement} */ (h("input", { type: "number", step: type === "int64" ? "1" : "any", value: "0" }));
}

/** @param {string} text @param {string} type @returns {string | number | boolean | null} The value of a column; null for an empty field. */
function valueOf(text, type) {
  if (text === "") return null;
  if (type === "string") return text;
  return type === "bool" ? text === "true" : Number(text);
}
