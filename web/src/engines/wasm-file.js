/** The wasm file of an engine: fetched with progress, compiled while it arrives, and of the pinned size or refused. */

import { download } from "../fetch/download.js";
import { InferError } from "../errors.js";

export const MISSING_HINT =
  "install the page's files: `make setup` in a checkout, `pip install 'edge-infer[web]'`, or with npm " +
  '`npx edge-infer-files public/edge-infer` and { root: "/edge-infer/" }';

/**
 * @typedef {object} WasmFile
 * @property {URL} url
 * @property {number} bytes The size that the pinned version has.
 * @property {string} needs What a browser that cannot compile it lacks.
 * @property {(why: string) => InferError} wrongVersion Makes the error of a file of another size.
 */

/**
 * @param {WasmFile} file
 * @param {import("../fetch/download.js").OnProgress} [onProgress]
 * @returns {Promise<WebAssembly.Module>}
 * @throws {InferError} `backend_unavailable`: it is missing, of another version, or the browser is too old.
 */
export async function compileWasm({ url, bytes, needs, wrongVersion }, onProgress) {
  let loaded = 0;
  /** @type {InferError | undefined} */
  let cut;
  /** @type {import("../fetch/download.js").OnProgress} */
  const counting = (progress) => {
    loaded = progress.loaded;
    onProgress?.(progress);
  };
  try {
    const onCut = (/** @type {InferError} */ error) => void (cut = error);
    const settings = { phase: /** @type {const} */ ("engine"), total: bytes, onProgress: counting, onCut };
    const response = await download(url, { ...settings, type: "application/wasm", hint: MISSING_HINT });
    if (url.protocol === "file:") {
      const content = await response.arrayBuffer();
      loaded = content.byteLength;
      if (loaded === bytes) return await WebAssembly.compile(content);
    } else {
      const module = await WebAssembly.compileStreaming(response);
      if (loaded === bytes) return module;
    }
  } catch (thrown) {
    const error = cut ?? thrown;
    if (error instanceof InferError) {
      error.code = "backend_unavailable";
      throw error;
    }
    const said = error instanceof Error ? error.message : String(error);
    throw new InferError(`The engine's file ${url} cannot be compiled: ${said}`, "backend_unavailable", {
      hint: needs,
      cause: error,
    });
  }
  throw wrongVersion(`it has ${loaded} bytes, expected ${bytes}`);
}

/**
 * Run an Emscripten factory with a module that is compiled already.
 *
 * @template T
 * @param {(options: any) => Promise<T>} factory
 * @param {WebAssembly.Module} wasm
 * @param {object} options More options of the factory.
 * @param {() => {name: string, hint: string}} about What starts, for the error.
 * @returns {Promise<T>}
 * @throws {InferError} `backend_unavailable`.
 */
export function instantiate(factory, wasm, options, about) {
  return new Promise((resolve, reject) => {
    /** @type {(imports: WebAssembly.Imports, done: (instance: WebAssembly.Instance, module: unknown) => void) => object} */
    const instantiateWasm = (imports, done) => {
      WebAssembly.instantiate(wasm, imports).then((instance) => done(instance, wasm), reject);
      return {};
    };
    factory({ ...options, instantiateWasm }).then(resolve, reject);
  }).catch((cause) => {
    const { name, hint } = about();
    throw new InferError(`${name} cannot start: ${cause}`, "backend_unavailable", { hint, cause });
  });
}
