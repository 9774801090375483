/** Know where the modules lie, without a form of address that a bundler would follow. */

import { EdgeInferError } from "../errors.js";

const [HERE] = import.meta.url.split("#");

/** The URL under which `src/` and `vendor/` lie; where a bundler has moved this module, that of its source. */
export const ROOT = HERE.replace(/(src\/fetch\/)?[^/]*$/, "");

/** What `edge-infer.js`, the one file with all modules, has in itself; empty where they lie apart. @type {{address: string, ort?: (options: object) => Promise<any>}} */
export const oneFile = { address: "" };

/**
 * @param {URL | string} [root] What the user gave.
 * @returns {string} The URL under which `src/` and `vendor/` lie.
 * @throws {EdgeInferError} `input_error`: it has to be given, because a bundler has moved the modules.
 */
export function rootOf(root) {
  if (root !== undefined) return new URL(root, globalThis.location?.href).href;
  if (ROOT.startsWith("file:") && /^https?:/.test(globalThis.location?.protocol ?? "")) {
    throw new EdgeInferError("The page was bundled, and the engine's files are not beside the modules any more", "input_error", {
      hint: 'npx edge-infer-files public/edge-infer, and { root: "/edge-infer/" }',
    });
  }
  return ROOT;
}
