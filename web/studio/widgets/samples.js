/** The pictures or sounds that a bundle brings along: buttons for each, and the first one as the first input. */

import { fileOf } from "../catalog.js";
import { h, trouble } from "../parts.js";

/** @typedef {import("../catalog.js").Model} Model */

/**
 * @param {Model} model
 * @param {(file: File) => void} take
 * @param {HTMLElement} news Where it is said that a sample does not come.
 * @returns {{buttons: HTMLElement[], first: () => void}} A button for each sample, and what takes the first one, where there is one.
 */
export function samplesOf(model, take, news) {
  const choose = (/** @type {string} */ path) => fetchFile(model, path).then(take, (error) => news.replaceChildren(trouble(error)));
  return {
    buttons: model.samples.map((path) => h("button", { onclick: () => choose(path) }, nameOf(path).replace(/\.\w+$/, ""))),
    first: () => void (model.samples.length && choose(model.samples[0])),
  };
}

/** @param {Model} model @param {string} path @returns {Promise<File>} */
async function fetchFile(model, path) {
  return new File([await fileOf(model, path)], nameOf(path));
}

/** @param {string} path */
function nameOf(path) {
  return path.split("/").pop() ?? "";
}
