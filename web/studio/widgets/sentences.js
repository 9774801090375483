/** Search by meaning: a query, and sentences that stand in the order of how near their vectors are to the query's. */

import { linkOf } from "../link.js";
import { bars, h } from "../parts.js";

/** @typedef {import("../../src/tensors.js").Tensor} Tensor */
const REST_MS = 250;
const QUERY = "how do I get warm?";
const SENTENCES = ["Put another log on the fire.", "The train leaves at nine.", "A scarf keeps the wind out.", "Her brother sells honey.", "Turn the heating up.", "The lake is deep and cold."];

/** @type {import("./registry.js").Make} */
export function sentences(_model, state) {
  const query = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 1 }, QUERY));
  const list = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 7 }, SENTENCES.join("\n")));
  const answer = h("", h("p.small.quiet", "The answer stands here."));
  let timer = 0;
  const ask = () => {
    const texts = [query.value.trim(), ...list.value.split("\n").map((line) => line.trim()).filter(Boolean)];
    if (!texts[0] || texts.length < 2) return;
    state.ask(texts);
  };
  for (const area of [query, list]) {
    area.addEventListener("input", () => {
      clearTimeout(timer);
      timer = window.setTimeout(ask, REST_MS);
    });
  }
  return {
    stage: h(".stage", h(".view.start", h("label.field", "Query", query), h("label.field", "Sentences, one a line", list))),
    answer,
    show: (found) => {
      const vectors = /** @type {Tensor[]} */ (found).map(({ data }) => Array.from(/** @type {ArrayLike<number>} */ (data), Number));
      // An answer to texts that were changed meanwhile has the next one behind it.
      const asked = state.asked?.value ?? [];
      if (vectors.length < 2 || vectors.length !== asked.length) return;
      const rows = vectors.slice(1).map((vector, i) => ({ text: asked[i + 1], value: cosine(vectors[0], vector) }));
      answer.replaceChildren(h("p.small.quiet", `Nearest first, by the cosine of vectors of ${vectors[0].length} numbers`), bars(rows.sort((a, b) => b.value - a.value)));
    },
    ready: () => state.hasInput || ask(),
    link: linkOf([query, list]),
    leave: () => clearTimeout(timer),
  };
}

/** @param {number[]} a @param {number[]} b @returns {number} */
function cosine(a, b) {
  const dot = (/** @type {number[]} */ x, /** @type {number[]} */ y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);
}
