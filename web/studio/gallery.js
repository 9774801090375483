/** The gallery: what this is, a race of the engines, and a card for each model of the server. */

import { bytes, h, notice } from "./parts.js";
import { triesOf } from "./tries.js";

/** @typedef {import("./catalog.js").Entry} Entry */

/** @param {Entry[]} list @returns {{parts: HTMLElement[], leave: () => void}} */
export function gallery(list) {
  let leave = () => {};
  if (list.length === 0) {
    return { parts: [h("h1", "No model is served yet"), notice("", "Convert one and serve it.", "`edge-infer convert model.onnx -o model.bundle` then `edge-infer serve model.bundle`")], leave };
  }
  const first = h("");
  if (list.some(({ variants = [] }) => variants.some(({ format }) => format === "compiled") && variants.some(({ format }) => format !== "compiled"))) {
    first.className = "race"; // its room is there before it
    import("./race.js").then(({ race, racerOf }) => {
      const racer = racerOf(list);
      if (racer && first.isConnected) leave = race(racer, first);
    });
  }
  const parts = [
    h(".hero", h("", h("h1", "Models that run in this page"),
      h("p.lead", "Try one on your camera, your voice or your words. What you give it stays in this page unless you choose the server."),
      h("p.lead", "The same file runs in Python, on a Raspberry Pi and on a server, with the same numbers.")), first),
    h("ul.cards", list.map(card)),
  ];
  return { parts, leave: () => leave() };
}

/** @param {Entry} entry @returns {HTMLElement} */
function card(entry) {
  const { name, url, version = "", task = "", license, samples = [], variants = [], chat, error } = entry;
  const href = `#/models/${encodeURIComponent(name)}`;
  if (error) {
    return h("li", h(".card.broken", h(".text", h("", h("h2", name), h("p.small", error.error.replaceAll("`", ""))), error.hint && h("p.small.quiet", error.hint.replaceAll("`", "")))));
  }
  const sizes = variants.map(({ size }) => size);
  const formats = [...new Set(variants.map(({ format }) => format))].join(", ");
  const rows = /** @type {[string, string][]} */ ([["smallest", sizes.length ? bytes(Math.min(...sizes)) : "–"], ["variants", String(variants.length)], ["formats", formats || "–"], ["licence", license || "–"]]);
  const picture = samples.find((path) => /\.(jpe?g|png|webp)$/i.test(path));
  const what = [task || "tensors in, tensors out", version && `version ${version}`].filter(Boolean).join(" · ");
  const shot = picture && h("img.shot", { src: `${url.replace(/\/$/, "")}/${picture}`, alt: "", width: 88, height: 88 });
  return h("li", h("a.card", { href }, h(".text", h(".top-line", h("", h("h2", name), h("p.small.quiet", what), h("p", triesOf(task, chat))), shot), h("dl", rows.map(([key, value]) => h("", h("dt", key), h("dd", value)))))));
}
