/** The same numbers: each variant on the bundle's golden examples here, and this page beside the server. */

import { InferError, load } from "../src/index.js";
import { badge, bytes, h, say, section, table } from "./parts.js";
import { dummyInputs } from "./inputs.js";
import { postInfer } from "./server.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("../src/tensors.js").Tensor} Tensor */

/** Codes of errors that say why a variant cannot run here at all: that is not a wrong number. */
const REFUSALS = ["unsupported", "unsupported_model", "backend_unavailable"];

/** @param {State} state @returns {HTMLElement} */
export function proof(state) {
  const { model } = state;
  const lines = model.variants.map(({ id, size }) => {
    const [verdict, why] = [h("td.num", badge("unknown")), h("td.small.wide", "")];
    return { id, verdict, why, row: h("tr", h("th", { scope: "row" }, id, h("small", bytes(size))), verdict, why) };
  });
  const [big, under] = [h("p.big", { role: "status" }, "–"), h("p.small.quiet", "One made input through this page and through the server.")];
  const button = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => run() }, "Run the proof"));

  async function run() {
    button.disabled = true;
    await state.pause();
    for (const { id, verdict, why } of lines) {
      if (!model.examples) {
        why.textContent = "no golden examples to compare with";
        continue;
      }
      why.textContent = "running…";
      try {
        const session = await load(model.url, { variant: id, selfTest: true });
        await session.dispose();
        verdict.replaceChildren(badge("pass"));
        why.textContent = "gives the golden outputs of its source here";
      } catch (error) {
        const isRefused = error instanceof InferError && REFUSALS.includes(error.code);
        verdict.replaceChildren(badge(isRefused ? "unknown" : "fail"));
        why.textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
      }
    }
    try {
      const inputs = dummyInputs(model.inputs);
      const session = await load(model.url, { variant: state.way.variant });
      const here = await session.run(inputs);
      await session.dispose();
      const there = await postInfer(model, inputs);
      big.textContent = largestDifference(here, there).toExponential(1).replace("0.0e+0", "0");
      under.textContent = `Largest difference between ${state.way.variant} in this page and the variant that the server runs, on a made input.`;
    } catch (error) {
      big.textContent = "–";
      under.textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
    }
    say("The proof has run.");
    button.disabled = false;
    state.choose({});
  }

  const text = model.examples ? "" : "The bundle has no golden examples: edge-infer convert makes them.";
  return section("The same numbers", text, h(".two", h("", table(["Variant", "Verdict", "Why"], lines.map(({ row }) => row))), h(".proof", h("h3", "This page and the server"), big, under)), h(".row", button));
}

/** @param {Record<string, Tensor>} a @param {Record<string, Tensor>} b @returns {number} Infinity where only one side is finite. */
function largestDifference(a, b) {
  let largest = 0;
  for (const [name, { data }] of Object.entries(a)) {
    const other = b[name]?.data;
    if (!other || other.length !== data.length) return Infinity;
    for (let i = 0; i < data.length; i++) {
      const [x, y] = [Number(data[i]), Number(other[i])];
      if (!Object.is(x, y)) largest = Math.max(largest, Number.isNaN(x - y) ? Infinity : Math.abs(x - y));
    }
  }
  return largest;
}
