/** Open a bundle whose files are in memory already, such as a version that was pulled from a store. */

import { InferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { chooseVariant, parseManifest, refuseExternal } from "./bundle.js";
import { readExamples } from "./golden.js";

/** @typedef {[path: string, bytes: Uint8Array<ArrayBuffer>][]} Files */

/**
 * @param {Files} files
 * @param {Pick<import("./bundle.js").FetchOptions, "variant" | "backend" | "precisions" | "onChosen">} [choosing]
 * @returns {Promise<import("./bundle.js").FetchedBundle & {examples: import("./golden.js").Example[]}>}
 * @throws {InferError} `manifest_error`, `bundle_error` or `unsupported_model`.
 */
export async function bundleOfFiles(files, { variant: wanted, backend, precisions, onChosen } = {}) {
  const found = new Map(files);
  const bytes = file(found, "manifest.json");
  const manifest = parseManifest(bytes);
  const variant = chooseVariant(manifest, wanted, backend, precisions);
  refuseExternal(variant);
  onChosen?.(variant);
  const labels = manifest.labels === undefined ? [] : JSON.parse(new TextDecoder().decode(file(found, manifest.labels)));
  const examples = manifest.examples === undefined ? [] : readExamples(file(found, manifest.examples));
  const revision = await sha256(bytes);
  const facts = { isKept: true, isOffline: false, why: wanted === undefined ? "rule" : "asked for" };
  return { name: manifest.name, revision, variant, model: file(found, variant.file), labels, examples, ...facts };
}

/** @param {Map<string, Uint8Array<ArrayBuffer>>} files @param {string} path */
function file(files, path) {
  const found = files.get(path);
  if (!found) throw new InferError(`The bundle lacks \`${path}\``, "bundle_error", { hint: "publish the model again" });
  return found;
}
