/** The gallery: what this is, a race of the engines, and a card for each model of the server. */

import { bytes, h, notice } from "./parts.js";

/** @typedef {import("./catalog.js").Entry} Entry */

/** What a visitor can do with a model, by its task. @type {Record<string, string>} */
const TRIES = {
  "object-detection": "Find things in a picture, or live by the camera",
  "image-classification": "Name what a picture shows",
  "image-segmentation": "Find the parts of a picture",
  "depth-estimation": "See how far away each part of a picture is",
  "audio-classification": "Name a sound, from a file or the microphone",
  "automatic-speech-recognition": "Write down what is said",
  "voice-activity-detection": "Hear when somebody speaks",
  "text-generation": "Begin a text; it goes on with it in this page",
  "feature-extraction": "Search sentences by their meaning",
  "text-classification": "Sort a text",
  "zero-shot-classification": "Sort a text by labels of your own",
  "question-answering": "Ask a text a question",
  "fill-mask": "Fill a gap in a text",
  "token-classification": "Find names in a text",
  "text-ranking": "Order documents by a question",
  "tabular-classification": "Fill in a row of a table",
  "tabular-regression": "Fill in a row of a table",
};

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
  return h("li", h("a.card", { href }, h(".text", h(".top-line", h("", h("h2", name), h("p.small.quiet", what), h("p", chat ? "Chat with it; it writes in this page" : (TRIES[task] ?? "Draw for it, or give it numbers"))), shot), h("dl", rows.map(([key, value]) => h("", h("dt", key), h("dd", value)))))));
}
