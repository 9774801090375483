/** The pictures or sounds that a bundle brings along: buttons for each, and the first one as the first input. */

import { h } from "../parts.js";

/** @typedef {import("../catalog.js").Model} Model */

/**
 * @param {Model} model
 * @param {(file: File) => void} take
 * @returns {HTMLElement[]}
 */
export function sampleButtons({ samples }, take) {
  return samples.map((url) => h("button", { onclick: () => fetchFile(url).then(take, () => {}) }, nameOf(url).replace(/\.\w+$/, "")));
}

/** Take the first sample, where there is one. @param {Model} model @param {(file: File) => void} take */
export function firstSample({ samples }, take) {
  if (samples.length) fetchFile(samples[0]).then(take, () => {});
}

/** @param {string} url @returns {Promise<File>} */
async function fetchFile(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
  const blob = await response.blob();
  return new File([blob], nameOf(url), { type: blob.type });
}

/** @param {string} url */
function nameOf(url) {
  return decodeURIComponent(url.split("/").pop() ?? "");
}
