/** Draw a small grey picture, such as a digit, and see what the model takes it for. */

import { bars, h, say } from "../parts.js";
import { Pad } from "../pad.js";
import { softmax, toPicture } from "./ink.js";

/** @typedef {import("./registry.js").Widget} Widget */
const SHOWN = 10;
/** The digit that is drawn where nobody has drawn one. */
const FIRST = "3";

/** @type {import("./registry.js").Make} */
export function drawing(model, state) {
  const [{ name, shape }] = model.inputs;
  const [rows, columns] = /** @type {number[]} */ (shape.slice(-2));
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas.pad", { tabIndex: 0, role: "img", "aria-label": "Pad to draw on. The buttons below draw an example." }));
  const seen = /** @type {HTMLCanvasElement} */ (h("canvas.seen", { width: columns, height: rows, "aria-hidden": true }));
  const prompt = h("p.prompt", { "aria-hidden": true }, "Draw here");
  const verdict = h("p.big", { "aria-live": "polite" }, "–");
  const list = h("");
  const pad = new Pad(canvas, ask);
  const isDigits = model.labels.length === 10 && model.labels.every((label, i) => label === String(i));
  const samples = isDigits ? model.labels.map((label, i) => h("button", { onclick: () => pad.draw(i), "aria-label": `Draw a ${label}` }, label)) : [];
  canvas.addEventListener("keydown", ({ key }) => ["Escape", "Delete", "Backspace"].includes(key) && pad.clear());

  function ask() {
    prompt.hidden = !pad.isEmpty;
    const { pixels, width, height } = pad.read();
    const picture = toPicture(pixels, width, height, rows, columns);
    draw(seen, picture);
    if (picture) state.ask({ [name]: { data: picture, dtype: "float32", shape: [1, 1, rows, columns] } });
    else {
      verdict.textContent = "–";
      list.replaceChildren();
    }
  }

  return {
    stage: h(".stage", h(".view", h(".paper", canvas, prompt)), h(".tools", samples, h("button", { onclick: () => pad.clear() }, "Clear"), isDigits && h("a.btn", { href: inPython(model.name) }, "The same in Python"))),
    answer: h(".answer", h(".row", seen, h("", verdict, h("p.small.quiet", "left: what the model sees"))), list),
    show: (outputs) => {
      if (pad.isEmpty) return;
      const scores = softmax(/** @type {ArrayLike<number>} */ (outputs[model.outputs[0].name].data));
      const best = scores.indexOf(Math.max(...scores));
      const text = `${model.labels[best] ?? best}, ${(100 * scores[best]).toFixed(0)} %`;
      if (verdict.textContent !== text) verdict.textContent = text;
      list.replaceChildren(bars(scores.slice(0, SHOWN).map((value, i) => ({ text: model.labels[i] ?? String(i), value }))));
    },
    ready: () => {
      if (!pad.isEmpty || state.hasInput) return;
      if (isDigits) pad.draw(Number(FIRST));
      else say("Draw on the pad.");
    },
    link: { get: () => [pad.pack()].filter((text) => text && text !== FIRST), set: ([text]) => pad.unpack(text) },
    leave: () => pad.stop(),
  };
}

/** @param {string} name @returns {string} The page that runs the model by Python. */
function inPython(name) {
  return new URL(`../../demo/?mode=python&model=${encodeURIComponent(name)}`, import.meta.url).href;
}

/** @param {HTMLCanvasElement} canvas @param {Float32Array | null} picture */
function draw(canvas, picture) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = context.createImageData(canvas.width, canvas.height);
  picture?.forEach((value, i) => pixels.data.set([20, 23, 27, Math.round(value * 255)], 4 * i));
  context.putImageData(pixels, 0, 0);
}
