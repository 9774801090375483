/** Check a revision: the signed document that names every file of one version and the packs with these files. */

import { EdgeInferError } from "../errors.js";
import { PART_BYTES } from "../fetch/transfer.js";

/** @typedef {import("./pack.js").File} File */
/** @typedef {{sha256: string, size: number, parts: string[], base?: string}} Pack A delta names its base bundle. */
/** @typedef {{model: string, version: string, sequence: number, created: number, files: File[], pack: Pack, deltas: Pack[], key: string}} Revision The name of its key is empty where it is in clear. */

export const MANIFEST = "manifest.json";
/** The file that names all others: that of a bundle, or of an index. */
const HEADS = [MANIFEST, "index.json"];
const CIPHER = "EISEAL01";

/**
 * @param {Uint8Array} bytes
 * @returns {Revision}
 * @throws {EdgeInferError} `store_error`: it is none, or of another format.
 */
export function parseRevision(bytes) {
  let document;
  try {
    document = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw malformed(`no JSON: ${error}`);
  }
  if (document?.format !== 1 && document?.format !== 2) throw malformed(`format ${document?.format}, this page reads 2`, "update edge-infer in this page");
  const { model, version, sequence, created, files, pack, deltas } = document;
  for (const text of [model, version]) if (typeof text !== "string" || text === "") throw malformed("no name or version");
  for (const number of [sequence, created]) if (!isCount(number)) throw malformed("no sequence or time");
  if (!Array.isArray(files) || !Array.isArray(deltas)) throw malformed("no lists");
  const { cipher, key = "" } = document.format === 2 ? (document.encryption ?? {}) : { cipher: CIPHER };
  if (cipher !== CIPHER || (document.format === 2 && !/^[0-9a-f]{16}$/.test(key))) throw malformed(`a cipher or key that this page does not know`, "update edge-infer in this page");
  const paths = new Set();
  for (const file of files) {
    const isPlain = typeof file?.path === "string" && !/[\\:\0]/.test(file.path);
    if (!isPlain || file.path.split("/").some((/** @type {string} */ part) => ["", ".", ".."].includes(part))) throw malformed(`the path \`${file?.path}\``);
    if (!isCount(file.size) || !isDigest(file.sha256) || paths.has(file.path)) throw malformed(`a wrong entry \`${file.path}\``);
    paths.add(file.path);
  }
  if (!HEADS.some((head) => paths.has(head))) throw malformed("no manifest");
  for (const one of [pack, ...deltas]) {
    const isRight = isDigest(one?.sha256) && isCount(one.size) && Array.isArray(one.parts) && one.parts.every(isDigest);
    if (!isRight || one.parts.length !== Math.ceil(one.size / PART_BYTES)) throw malformed("a wrong pack");
  }
  if (pack.base !== undefined || !deltas.every((one) => isDigest(one.base))) throw malformed("a pack with a wrong base");
  return { model, version, sequence, created, files, pack, deltas, key };
}

/**
 * @param {{files: readonly File[]}} version
 * @returns {string} The bundle's revision: the sha256 of its `manifest.json`, or of the `index.json` of an index.
 */
export function bundleOf({ files }) {
  const [head] = HEADS.flatMap((name) => files.filter(({ path }) => path === name));
  return head?.sha256 ?? "";
}

/** @param {unknown} value */
export function isCount(value) {
  return Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;
}

/** @param {unknown} value */
export function isDigest(value) {
  return typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
}

/** @param {string} what @param {string} [hint] */
function malformed(what, hint = "publish the model again") {
  return new EdgeInferError(`The revision is malformed: it has ${what}`, "store_error", { hint });
}
