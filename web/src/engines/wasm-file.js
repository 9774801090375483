/** Start the wasm module of an engine, and refuse one that is not of the pinned version. */

import { download } from "../fetch/download.js";
import { EdgeInferError } from "../errors.js";
import { compileBytes, compileResponse } from "./wasm-module.js";

export const MISSING_HINT =
  "install the page's files: `make setup` in a checkout, `pip install 'edge-infer[web]'`, or with npm " +
  '`npx edge-infer-files public/edge-infer` and { root: "/edge-infer/" }';

// By its name here: what bundles a page would look for it.
const NODE_MODULE = "node:module";
const POLICY_HINT = "let the page's Content-Security-Policy say `script-src 'self' 'wasm-unsafe-eval'`";

/**
 * @typedef {object} Pinned An engine's version, the only one whose files fit.
 * @property {string} name
 * @property {string} npm Its package.
 * @property {string} version
 * @property {readonly string[]} functions What its module must export.
 * @property {string} model In base64: y = x + x over x: float32[any, 2].
 * @property {string[]} rows The names that a session gives the rows of x and of y.
 */

/** @returns {Promise<NodeJS.Require | undefined>} What finds packages in Node; undefined elsewhere. */
export async function nodeRequire() {
  if (!globalThis.process?.versions?.node) return undefined;
  const { createRequire } = await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ NODE_MODULE);
  return createRequire(import.meta.url);
}

/**
 * Find an engine's files in Node, where its npm package is at hand.
 *
 * @param {Pinned} pinned
 * @param {URL} folder Where they are looked for first.
 * @param {string} script One of them.
 * @returns {Promise<URL>} The folder, or that of the package.
 */
export async function folderOf({ npm }, folder, script) {
  const require = folder.protocol === "file:" ? await nodeRequire() : undefined;
  if (!require || require("fs").existsSync(new URL(script, folder))) return folder;
  for (const name of [`${npm}/${script}`, `${npm}/wasm/${script}`]) {
    try {
      return new URL(".", require("url").pathToFileURL(require.resolve(name)));
    } catch {
      // the other package keeps them elsewhere
    }
  }
  return folder;
}

/**
 * Fetch and compile an engine's wasm file.
 *
 * @param {Pinned} pinned
 * @param {URL} url
 * @param {number} bytes The size that the pinned version has.
 * @param {import("../fetch/download.js").OnProgress} [onProgress]
 * @returns {Promise<WebAssembly.Module>}
 * @throws {EdgeInferError} `backend_unavailable`: it is missing, of another version, or the browser is too old.
 */
export async function compileWasm(pinned, url, bytes, onProgress) {
  let loaded = 0;
  /** @type {EdgeInferError | undefined} */
  let cut;
  /** @type {import("../fetch/download.js").OnProgress} */
  const counting = (progress) => {
    loaded = progress.loaded;
    onProgress?.(progress);
  };
  try {
    const onCut = (/** @type {EdgeInferError} */ error) => void (cut = error);
    const settings = { phase: /** @type {const} */ ("engine"), total: bytes, onProgress: counting, onCut };
    const response = await download(url, { ...settings, type: "application/wasm", hint: MISSING_HINT });
    if (url.protocol === "file:") {
      const content = await response.arrayBuffer();
      loaded = content.byteLength;
      if (loaded === bytes) return await compileBytes(content);
    } else {
      const module = await compileResponse(response);
      if (loaded === bytes) return module;
    }
  } catch (thrown) {
    const error = cut ?? thrown;
    if (error instanceof EdgeInferError) {
      error.code = "backend_unavailable";
      throw error;
    }
    const said = error instanceof Error ? error.message : String(error);
    throw new EdgeInferError(`The engine's file ${url} cannot be compiled: ${said}`, "backend_unavailable", {
      hint: /security policy|\bCSP\b|unsafe-eval/i.test(said) ? POLICY_HINT : "a browser of 2021 or later is needed, with WebAssembly SIMD and threads",
      cause: error,
    });
  }
  throw wrongVersion(pinned, url, `it has ${loaded} bytes, expected ${bytes}`);
}

/**
 * Import an engine's script.
 *
 * @param {URL} url
 * @param {string} version The one that it has to be of.
 * @returns {Promise<any>}
 * @throws {EdgeInferError} `backend_unavailable`.
 */
export async function importScript(url, version) {
  try {
    return await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ url.href);
  } catch (cause) {
    const details = { url: url.href, version };
    throw new EdgeInferError(`The engine's file ${url} cannot be loaded`, "backend_unavailable", { hint: MISSING_HINT, details, cause });
  }
}

/**
 * Run an Emscripten factory with a module that is compiled already.
 *
 * @param {Pinned} pinned
 * @param {URL} folder
 * @param {(options: any) => Promise<any>} factory
 * @param {WebAssembly.Module} wasm
 * @param {object} options More options of the factory.
 * @returns {Promise<any>} Its module.
 * @throws {EdgeInferError} `backend_unavailable`.
 */
export async function instantiate(pinned, folder, factory, wasm, options) {
  const { name, version, functions } = pinned;
  const starting = new Promise((resolve, reject) => {
    /** @type {(imports: WebAssembly.Imports, done: (instance: WebAssembly.Instance, module: unknown) => void) => object} */
    const instantiateWasm = (imports, done) => {
      WebAssembly.instantiate(wasm, imports).then((instance) => done(instance, wasm), reject);
      return {};
    };
    factory({ ...options, instantiateWasm }).then(resolve, reject);
  });
  const module = await starting.catch((cause) => {
    const hint = `its files must all be of version ${version}`;
    throw new EdgeInferError(`${name} cannot start: ${cause}`, "backend_unavailable", { hint, cause });
  });
  const missing = functions.filter((one) => typeof Reflect.get(module, one) !== "function");
  if (missing.length > 0) throw wrongVersion(pinned, folder, `it does not export ${missing.join(", ")}`);
  return module;
}

/**
 * Prove that the exports do what this code takes them to do.
 *
 * @param {Pinned} pinned
 * @param {URL} folder
 * @param {{createSession: (model: Uint8Array) => {describe: () => string, run: (feeds: Record<string, unknown>) => Record<string, any>, close: () => void}}} engine
 */
export function selfTest(pinned, folder, engine) {
  let said;
  try {
    const session = engine.createSession(bytesOf(pinned.model));
    const specs = session.describe();
    const { data, shape } = session.run({ x: [[1, 2], [3, -4]] }).y;
    session.close();
    const [inputs, outputs] = ["x", "y"].map((name, i) => [{ name, dtype: "float32", shape: [pinned.rows[i], 2] }]);
    if (specs === JSON.stringify({ inputs, outputs }) && shape.join() === "2,2" && data.join() === "2,4,6,-8") return;
    said = `the test model gave [${data}] of shape (${shape}) and ${specs}`;
  } catch (error) {
    said = `the test model failed: ${error instanceof Error ? error.message : String(error)}`;
  }
  throw wrongVersion(pinned, folder, said);
}

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** @param {Pinned} pinned @param {URL} place @param {string} why */
function wrongVersion({ name, npm, version }, place, why) {
  return new EdgeInferError(`${new URL(".", place)} does not hold ${name} ${version}: ${why}`, "backend_unavailable", {
    hint: `npm install ${npm}@${version}, or pip install 'edge-infer[web]' again`,
    details: { expected: version },
  });
}
