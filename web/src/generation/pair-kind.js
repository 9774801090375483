/** Tell bundles that have an encoder and a decoder from others. */

/** @param {import("../bundle/manifest.js").Manifest} manifest @returns {boolean} Whether a bundle is of this kind, of any version. */
export function isPair({ generate }) {
  return typeof generate?.kind === "string" && generate.kind.startsWith("encoder-decoder/");
}
