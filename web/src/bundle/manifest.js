/**
 * The manifest of a bundle: `manifest.json`, parsed and checked as far as a page uses it.
 * The rules are those of `edge_infer.bundle.manifest`.
 */

import { EdgeInferError } from "../errors.js";
import { PART_BYTES } from "../fetch/transfer.js";

/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../fetch/transfer.js").FileEntry} FileEntry */
/**
 * @typedef {object} Variant
 * @property {string} id
 * @property {string} format
 * @property {string} precision
 * @property {Record<string, import("./golden.js").Known>} [parity] By output, how far from the source it may be.
 * @property {string} file
 * @property {string[]} [targets]
 * @property {string[]} [external]
 * @property {Record<string, Record<string, string>>} [options]
 * @property {{kind: "hidden" | "pair", out?: string, in?: string}[]} [state] What a stream carries from step to step.
 */
/**
 * @typedef {object} Manifest
 * @property {string} schema_version
 * @property {string} name
 * @property {string} version
 * @property {TensorSpec[]} inputs
 * @property {TensorSpec[]} outputs
 * @property {Variant[]} variants
 * @property {FileEntry[]} files
 * @property {string} [labels]
 * @property {string} [examples]
 * @property {string} [task] What the model is for, such as `image-classification`.
 * @property {Record<string, any>} [pipeline] The steps before and after the model; `tasks/definition.js` reads them.
 * @property {{hub: string, revision: string}} [source] The repository that the model came from, at a commit.
 * @property {{reference: string}} [monitor] What drift is compared with; `monitor/` reads it.
 * @property {Record<string, any>} [generate] What the generation of text needs beside the weights; `generation/` reads it.
 * @property {Record<string, any>} [chain] How the bundles inside feed one another; `chains/` reads it.
 */

/** The file's name inside a bundle. */
export const MANIFEST = "manifest.json";
const SCHEMA_MAJOR = "1";
const MAX_MANIFEST_BYTES = 16 * 2 ** 20;
const RESERVED_IN_VARIANT = ["generate", "stream"];

/**
 * Parse and check a manifest, as far as this page uses it.
 *
 * @param {Uint8Array} bytes
 * @returns {Manifest}
 * @throws {EdgeInferError} `manifest_error`.
 */
export function parseManifest(bytes) {
  if (bytes.length > MAX_MANIFEST_BYTES) throw manifestError(`has ${bytes.length} bytes, expected at most ${MAX_MANIFEST_BYTES}`);
  /** @type {any} */
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw manifestError(`is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (manifest === null || typeof manifest !== "object" || Array.isArray(manifest)) throw manifestError("holds no object");
  const { schema_version: version, name, variants, files } = manifest;
  if (typeof version !== "string") throw manifestError("has no `schema_version`");
  if (version.split(".")[0] !== SCHEMA_MAJOR) {
    throw manifestError(`has schema_version \`${version}\`, this page reads ${SCHEMA_MAJOR}.x`, "update edge-infer");
  }
  if (typeof name !== "string" || !/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name)) throw manifestError("has no proper `name`");
  for (const key of ["inputs", "outputs", "variants", "files"]) {
    if (!Array.isArray(manifest[key])) throw manifestError(`has no list \`${key}\``);
  }
  const { chain } = manifest;
  if (chain !== undefined && (chain === null || typeof chain !== "object" || Array.isArray(chain))) throw manifestError("has a `chain` that is no object");
  if (variants.length === 0 && chain === undefined) throw manifestError("has no variant");
  checkFiles(files);
  const paths = new Set(files.map((/** @type {FileEntry} */ file) => file.path));
  for (const variant of variants) {
    if (variant === null || typeof variant !== "object") throw manifestError(`has \`${JSON.stringify(variant)}\` in place of a variant`);
    refuse(variant, RESERVED_IN_VARIANT);
    if (!Array.isArray(variant.state ?? [])) throw manifestError(`has a variant \`${variant.id}\` whose state is no list`);
    for (const state of variant.state ?? []) {
      const isPair = state?.kind === "pair" && typeof state.out === "string" && typeof state.in === "string";
      if (state?.kind !== "hidden" && !isPair) throw manifestError(`has a variant \`${variant.id}\` whose state has no kind that is known`);
    }
    if (typeof variant?.id !== "string" || !paths.has(variant.file)) {
      throw manifestError(`has a variant \`${variant?.id}\` whose file \`${variant?.file}\` it does not list`);
    }
  }
  checkGenerate(manifest.generate, paths);
  checkSource(manifest.source);
  if (new Set(variants.map((/** @type {Variant} */ { id }) => id)).size < variants.length) throw manifestError("names a variant twice");
  return manifest;
}

/**
 * Check the kind and the files of `generate`; the rest is checked by what generates.
 *
 * @param {any} generate
 * @param {Set<string>} paths
 */
function checkGenerate(generate, paths) {
  if (generate === undefined) return;
  if (generate === null || typeof generate !== "object" || Array.isArray(generate)) throw manifestError("has a `generate` that is no object");
  if (typeof generate.kind !== "string" || generate.kind === "") throw manifestError("has a `generate` without a `kind`");
  for (const field of ["tokenizer", "chat_template", "vectors"]) {
    if (field in generate && !paths.has(generate[field])) throw manifestError(`has a \`generate\` whose ${field} \`${generate[field]}\` it does not list`);
  }
}

/**
 * Check where a model came from.
 *
 * @param {any} source
 */
function checkSource(source) {
  if (source === undefined) return;
  const isText = (/** @type {unknown} */ value) => typeof value === "string" && value !== "";
  if (!isText(source?.hub) || !isText(source?.revision)) throw manifestError("has a `source` without `hub` and `revision`");
}

/** @param {FileEntry[]} files */
function checkFiles(files) {
  const seen = new Set();
  for (const file of files) {
    const path = file?.path;
    if (typeof path !== "string" || /[\\:\0]/.test(path) || path.split("/").some((part) => ["", ".", ".."].includes(part))) {
      throw manifestError(`names the path \`${path}\`, which leaves the bundle or is not plain`);
    }
    if (seen.has(path)) throw manifestError(`names \`${path}\` twice`);
    seen.add(path);
    if (!Number.isSafeInteger(file.size) || file.size < 0) throw manifestError(`gives \`${path}\` no size`);
    if (!/^[0-9a-f]{64}$/.test(file.sha256)) throw manifestError(`gives \`${path}\` no sha256`);
    const { parts = [] } = file;
    if (!Array.isArray(parts) || (parts.length > 0 && parts.length !== Math.ceil(file.size / PART_BYTES))) {
      throw manifestError(`gives \`${path}\` ${parts.length} part hashes for ${file.size} bytes`);
    }
  }
}

/**
 * @param {Record<string, unknown>} entry
 * @param {string[]} fields
 */
function refuse(entry, fields) {
  const found = fields.find((field) => entry !== null && typeof entry === "object" && field in entry);
  if (found) throw manifestError(`has the field \`${found}\`, which is reserved for a later version`, "update edge-infer");
}

/**
 * @param {string} what What is wrong with the manifest.
 * @param {string} [hint]
 * @returns {EdgeInferError} `manifest_error`.
 */
export function manifestError(what, hint = "make the bundle again with `edge-infer convert`") {
  return new EdgeInferError(`manifest.json ${what}`, "manifest_error", { hint });
}
