/** The pictures or sounds that a bundle brings along: buttons for each, and the first one as the first input. */

import { fileOf } from "../catalog.js";
import { h, trouble } from "../parts.js";

/** @typedef {import("../catalog.js").Model} Model */

/**
 * @param {Model} model
 * @param {(file: File, sample: string) => void} take Told the path of the sample too; it says what it shows by `shown`.
 * @param {HTMLElement} news Where it is said that a sample does not come.
 * @returns {{buttons: HTMLElement[], first: () => void, shown: string, link: import("./registry.js").Link}} A button for each sample,
 *   and what takes the first one, where there is one; the sample on the screen, empty for another input.
 */
export function samplesOf(model, take, news) {
  let [first = ""] = model.samples;
  const choose = (/** @type {string} */ path) => fetchFile(model, path).then((file) => take(file, path), (error) => news.replaceChildren(trouble(error)));
  const own = {
    buttons: model.samples.map((path) => h("button", { onclick: () => choose(path) }, nameOf(path).replace(/\.\w+$/, ""))),
    first: () => void (first && choose(first)),
    shown: "",
    link: {
      get: () => (own.shown && own.shown !== model.samples[0] ? [own.shown] : []),
      set: (/** @type {string[]} */ [path]) => void (model.samples.includes(path) && (first = path)),
    },
  };
  return own;
}

/** @param {Model} model @param {string} path @returns {Promise<File>} */
async function fetchFile(model, path) {
  return new File([await fileOf(model, path)], nameOf(path));
}

/** @param {string} path */
function nameOf(path) {
  return path.split("/").pop() ?? "";
}
