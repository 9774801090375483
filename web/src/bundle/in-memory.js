/** Open a bundle whose files are in memory already, such as a version that was pulled from a store. */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { readContent } from "./bundle.js";
import { MANIFEST, manifestError, parseManifest } from "./manifest.js";
import { chooseVariant } from "./selection.js";

/** @typedef {import("./bundle.js").FetchedBundle} FetchedBundle */
/** @typedef {[path: string, bytes: Uint8Array<ArrayBuffer>][]} Files */

/**
 * Open a bundle of files.
 *
 * @param {Files} files
 * @param {import("./selection.js").Choosing & Pick<import("./bundle.js").FetchOptions, "onChosen">} [choosing]
 * @returns {Promise<FetchedBundle>}
 * @throws {EdgeInferError} `manifest_error`, `bundle_error` or `unsupported_model`; `input_error`: they are those of an index.
 */
export async function bundleOfFiles(files, { variant, backend, formats, precisions, onChosen } = {}) {
  const found = new Map(files);
  const read = async (/** @type {string} */ path) => {
    const bytes = found.get(path);
    if (!bytes) throw new EdgeInferError(`The bundle lacks \`${path}\``, "bundle_error", { hint: "publish the model again" });
    return { bytes, isKept: true };
  };
  if (!found.has(MANIFEST) && found.has("index.json")) {
    throw new EdgeInferError("It is an index of vectors, and no model", "input_error", { hint: "openIndex(url)" }); // nothing is wrong with it
  }
  const { bytes } = await read(MANIFEST);
  const manifest = parseManifest(bytes);
  const chosen = chooseVariant(manifest, variant, backend, { formats, precisions });
  const models = new Set(manifest.variants.map(({ file }) => file));
  // The models are let go: what is read later are small files, such as a vocabulary.
  const small = new Map(files.filter(([path]) => !models.has(path)));
  /** @type {import("./bundle.js").Reader} */
  const readMore = async (path) => {
    const kept = small.get(path);
    if (!kept) throw manifestError(`does not list \`${path}\``);
    return kept;
  };
  const content = await readContent(manifest, chosen, read, true, () => onChosen?.(chosen));
  return { ...content, revision: await sha256(bytes), isOffline: false, why: variant === undefined ? "rule" : "asked for", read: readMore };
}
