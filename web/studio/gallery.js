/** The gallery: a card for each model of the server. */

import { bytes, h, notice } from "./parts.js";

/** @typedef {import("./catalog.js").Entry} Entry */

/** @param {Entry[]} list @returns {HTMLElement[]} */
export function gallery(list) {
  if (list.length === 0) {
    return [h("h1", "No model is served yet"), notice("", "Convert one and serve it.", "`edge-infer convert model.onnx -o model.bundle` then `edge-infer serve model.bundle`")];
  }
  return [
    h("h1", list.length === 1 ? "One model" : `${list.length} models`),
    h("p.why", "Each loads when you choose it. What you give it stays in this page unless you choose the server."),
    h("ul.cards", list.map(card)),
  ];
}

/** @param {Entry} entry @returns {HTMLElement} */
function card(entry) {
  const { name, url, version = "", task = "", license, samples = [], variants = [], error } = entry;
  const href = `#/models/${encodeURIComponent(name)}`;
  if (error) {
    return h("li", h(".card.broken", h(".text", h("", h("h2", name), h("p.small", error.error.replaceAll("`", ""))), error.hint && h("p.small.quiet", error.hint.replaceAll("`", "")))));
  }
  const sizes = variants.map(({ size }) => size);
  const formats = [...new Set(variants.map(({ format }) => format))].join(", ");
  const rows = /** @type {[string, string][]} */ ([["smallest", sizes.length ? bytes(Math.min(...sizes)) : "–"], ["variants", String(variants.length)], ["formats", formats || "–"], ["licence", license || "–"]]);
  const picture = samples.find((path) => /\.(jpe?g|png|webp)$/i.test(path));
  return h("li", h("a.card", { href }, picture && h("img.shot", { src: `${url.replace(/\/$/, "")}/${picture}`, alt: "", loading: "lazy" }), h(".text", h("", h("h2", name), h("p.small.quiet", [task, version && `version ${version}`].filter(Boolean).join(" · "))), h("dl", rows.map(([key, value]) => h("", h("dt", key), h("dd", value)))))));
}
