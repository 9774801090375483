/** Tensors in, tensors out: a golden example of the bundle, or made values; the fallback for every model. */

import { readExamples } from "../../src/bundle/golden.js";
import { fileOf } from "../catalog.js";
import { dummyInputs } from "../inputs.js";
import { h, notice, pick } from "../parts.js";
import { tensorViews } from "./answers.js";

/** @typedef {import("../../src/tensors.js").Tensor} Tensor */

/** @type {import("./registry.js").Make} */
export async function tensors(model, state) {
  const list = h(".tensors");
  /** @type {Record<string, Record<string, Tensor>>} */
  const given = {};
  let trouble = "";
  if (model.examples) {
    try {
      readExamples(await fileOf(model, model.examples)).slice(0, 4).forEach(({ inputs }, i) => (given[`golden-${i}`] = inputs));
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
  }
  try {
    given.made = dummyInputs(model.inputs);
  } catch (error) {
    trouble = error instanceof Error ? error.message : String(error);
  }
  let shown = "";
  const ask = (/** @type {string} */ id) => {
    shown = id;
    list.replaceChildren(...tensorViews(given[id]));
    state.ask(given[id]);
  };
  const names = Object.keys(given);
  const options = names.map((id) => ({ id, text: id === "made" ? "made values" : `golden example ${Number(id.slice(7)) + 1}` }));
  const picked = pick("Input", "tensor-input", options, ask);
  const answer = h("", h("p.small.quiet", "The outputs stand here."));
  return {
    stage: h(".stage", h(".view.start", list), h(".tools", picked, trouble && notice("warn", "One input cannot be made here.", trouble))),
    answer,
    show: (outputs) => answer.replaceChildren(...tensorViews(outputs)),
    ready: () => {
      if (state.hasInput || names.length === 0) return;
      shown ||= names[0];
      picked.show(shown);
      ask(shown);
    },
    link: { get: () => (shown === names[0] || !shown ? [] : [shown]), set: ([id]) => void (names.includes(id) && (shown = id)) },
  };
}
