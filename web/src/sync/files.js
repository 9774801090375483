/** A bundle whose files are here already. */

import { chooseVariant, parseManifest } from "../bundle.js";
import { InferError } from "../errors.js";
import { sha256 } from "../sha256.js";
import { readExamples } from "./golden.js";
import { MANIFEST } from "./revision.js";

/**
 * @param {import("../protocol.js").Files} files
 * @param {Pick<import("../bundle.js").FetchOptions, "variant" | "backend" | "precisions" | "onChosen">} [choosing]
 * @returns {Promise<import("../bundle.js").FetchedBundle & {examples: import("./golden.js").Example[]}>}
 * @throws {InferError} `manifest_error`, `bundle_error` or `unsupported_model`.
 */
export async function bundleOfFiles(files, { variant: wanted, backend, precisions, onChosen } = {}) {
  const found = new Map(files);
  const bytes = file(found, MANIFEST);
  const manifest = parseManifest(bytes);
  const variant = chooseVariant(manifest, wanted, backend, precisions);
  if (variant.external?.length) {
    throw new InferError(`Variant \`${variant.id}\` has external data, which a page cannot read`, "unsupported_model", {
      hint: "save the model as one file",
    });
  }
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
