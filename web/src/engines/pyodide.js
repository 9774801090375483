/**
 * Start Python in a worker: Pyodide with edge-infer installed, and its engines started before user code runs, so that
 * `edge_infer.load(...)` and `session.run(...)` are synchronous there without JSPI.
 */

import { download, downloadBytes } from "../fetch/download.js";
import { EdgeInferError } from "../errors.js";
import { sharedEngine } from "./open.js";
import { filesOf } from "./tar.js";
import { compileBytes, compileResponse } from "./wasm-module.js";

/** @typedef {import("./open.js").EngineSettings} EngineSettings */
/** @typedef {import("../fetch/download.js").OnProgress} OnProgress */
/** @typedef {import("pyodide").PyodideInterface} Pyodide */

/** The only version of Pyodide that is tested. */
export const PYODIDE_VERSION = "314.0.7";

// The ends of the names of two archives: what a page needs at its start, and the rooms that Python fetches when it imports one.
const [FIRST, LATER] = ["-page.tar", "-page-later.tar"];
const NO_PYTHON = "install the page's files: `make setup` in a checkout, else `pip install 'edge-infer[web]'`";
// Where Python finds the engine of compiled models, which needs no start: so it is always there.
const COMPILED_PLACE = "edgeInferCompiledEngine";
// Sizes of that version's files as they are unpacked, to tell how far a download has come.
export const FILE_BYTES = { "pyodide.asm.wasm": 9_598_218, "python_stdlib.zip": 2_545_637, "pyodide-lock.json": 0 };

// Runs what the page sends, and answers with plain data. An exception goes back as `EdgeInferError.to_json` gives it,
// or as code `python_error` with the traceback of the user's own frames.
const BRIDGE = `
def _described(error):
    import traceback
    if hasattr(error, "to_json"):
        return error.to_json()
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.split("/")[-1] in ("_base.py", "<bridge>"):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    said = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return {"error": said, "code": "python_error", "hint": "", "details": {"traceback": text}}

def _plain(value, _convert, _cache):
    import js
    if hasattr(value, "to_json"):
        return _to_js(value.to_json())
    if hasattr(value, "_asdict"):
        return _to_js(value._asdict())
    if hasattr(value, "tolist"):
        return _to_js(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot leave Python; return numbers, text, bytes, lists or dicts")

def _to_js(value):
    import js
    from pyodide.ffi import to_js
    return to_js(value, dict_converter=js.Object.fromEntries, default_converter=_plain)

async def _answer(make):
    import inspect
    try:
        value = make()
        if inspect.isawaitable(value):
            value = await value
        return _to_js({"value": value})
    except BaseException as error:
        return _to_js({"error": _described(error)})

async def execute(code, names):
    from pyodide.code import eval_code_async
    import __main__
    __main__.__dict__.update(names.to_py())
    return await _answer(lambda: eval_code_async(code, __main__.__dict__, filename="<page>"))

async def call(module, name, values):
    from importlib import import_module
    def make():
        target = import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
        return target(*values.to_py())
    return await _answer(make)
`;

// So that a module is found which was written just now. `importlib.invalidate_caches()` imports `importlib.metadata`, for a second.
const FORGET_FOLDERS = "import sys; sys.path_importer_cache.clear()";

/** Python, ready to run. */
export class Python {
  /** @param {Pyodide} pyodide */
  constructor(pyodide) {
    /** @type {import("pyodide").PyodideInterface} */
    this.pyodide = pyodide;
    const names = pyodide.toPy({});
    pyodide.runPython(BRIDGE, { globals: names, filename: "<bridge>" });
    this.bridge = { execute: names.get("execute"), call: names.get("call") };
  }

  /**
   * Run code with `await` at its top level.
   *
   * @param {string} code
   * @param {Record<string, unknown>} names Variables to set first.
   * @returns {Promise<unknown>} The value of its last expression, as plain data.
   */
  async execute(code, names) {
    return unwrap(await this.bridge.execute(code, names));
  }

  /**
   * Call a function of a module.
   *
   * @param {string} module
   * @param {string} name
   * @param {unknown[]} values Its positional arguments.
   * @returns {Promise<unknown>} What it returns, awaited, as plain data.
   */
  async call(module, name, values) {
    return unwrap(await this.bridge.call(module, name, values));
  }

  /**
   * Write a file, so that Python can open or import it.
   *
   * @param {string} path Relative to Python's working folder, which is on its import path.
   * @param {Uint8Array} data
   */
  write(path, data) {
    const { FS } = this.pyodide;
    const folder = path.slice(0, Math.max(0, path.lastIndexOf("/")));
    if (folder) FS.mkdirTree(folder);
    FS.writeFile(path, data);
    this.pyodide.runPython(FORGET_FOLDERS);
  }
}

/** @param {{value?: unknown, error?: import("../errors.js").ErrorDocument}} answer */
function unwrap(answer) {
  if (answer.error) throw EdgeInferError.fromJSON(answer.error);
  return answer.value;
}

/**
 * Start engines and Python, side by side.
 *
 * @param {EngineSettings} settings
 * @param {string} wheel The address of edge-infer's wheel; empty to install none.
 * @param {import("../bundle/measured.js").EngineName[]} engines Those that Python finds started.
 * @param {object} [options]
 * @param {OnProgress} [options.onProgress]
 * @param {(stream: "stdout" | "stderr", text: string) => void} [options.onOutput] Told each line that Python prints.
 * @returns {Promise<{python: Python, engines: import("./open.js").Engines[keyof import("./open.js").Engines][], isFromImage: boolean, spared: string[]}>} `spared` are the addresses
 *   of files that were not fetched, because the image has them.
 * @throws {EdgeInferError} `backend_unavailable` or `fetch_error`: a file is missing or of another version; `input_error`:
 *   there is no such engine.
 */
export async function startPython({ root, threads }, wheel, engines, { onProgress, onOutput } = {}) {
  const image = openKept();
  const options = { root, threads, onProgress };
  if (engines.length === 0) throw new EdgeInferError("No engine is named; choose from `ort`, `litert`, `compiled`", "input_error");
  const booting = bootPyodide(new URL("vendor/pyodide/", root), image, onProgress, onOutput);
  const [started, { pyodide, isFromImage }, package_] = await Promise.all([
    Promise.all(engines.map((name) => (name === "ort" ? startOrt(options, image, booting) : sharedEngine(name, options)))),
    booting,
    wheel ? downloadBytes(wheel, { phase: "package", onProgress, hint: "edge-infer serve" }) : null,
  ]);
  const places = { ort: "edgeInferOrtEngine", litert: "edgeInferLiteRtEngine", compiled: COMPILED_PLACE };
  Object.assign(globalThis, { edgeInferRoot: root, edgeInferThreads: threads, [COMPILED_PLACE]: await sharedEngine("compiled", options) });
  engines.forEach((name, i) => Object.assign(globalThis, { [places[name]]: started[i] }));
  if (package_) unpack(pyodide, package_, wheel.endsWith(".tar") ? "tar" : "wheel");
  if (wheel.endsWith(FIRST)) {
    const later = JSON.stringify(`${wheel.slice(0, -FIRST.length)}${LATER}`);
    pyodide.runPython(`from edge_infer.platform.later_rooms import install; install(${later})`);
  }
  const files = ["pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip", "onnxruntime-web/ort-wasm-simd-threaded.wasm"];
  const spared = (await image) ? files.map((file) => new URL(`vendor/${file}`, root).href) : [];
  return { python: new Python(pyodide), engines: started, isFromImage, spared };
}

/** @typedef {import("../cache/python-image.js").PythonImage} PythonImage */

/** @returns {Promise<PythonImage | null>} What an earlier visit kept for this start. */
async function openKept() {
  // Asked first, so that a first visit loads no module for it.
  const sealed = await globalThis.navigator?.storage?.getDirectory?.()
    .then((root) => root.getDirectoryHandle("edge-infer"))
    .then((kept) => kept.getFileHandle(`python-${PYODIDE_VERSION}.json`))
    .catch(() => null);
  if (!sealed) return null;
  const [{ openImage }, { ORT_VERSION }] = await Promise.all([import("../cache/python-image.js"), import("./ort.js")]);
  return openImage({ python: PYODIDE_VERSION, engine: ORT_VERSION });
}

/**
 * Start onnxruntime-web from what was kept, else as usual.
 *
 * @param {import("./open.js").StartOptions} options
 * @param {Promise<PythonImage | null>} keeping
 * @param {Promise<unknown>} booting Python's start, which reads its own parts of what was kept.
 */
async function startOrt(options, keeping, booting) {
  const image = await keeping;
  if (!image) return sharedEngine("ort", options);
  try {
    const kept = { wasm: () => image.read("engine-wasm"), memory: () => image.read("engine-memory") };
    return await sharedEngine("ort", { ...options, kept });
  } catch (error) {
    await booting.catch(() => {});
    await dropKept("the engine", error);
    return sharedEngine("ort", options);
  }
}

/** @param {string} what @param {unknown} error */
async function dropKept(what, error) {
  console.warn(`edge-infer: ${what} starts as usual, its kept image does not fit: ${error}`);
  await (await import("../cache/python-image.js")).dropImage().catch(() => {});
}

/**
 * Start Pyodide from the image that an earlier visit kept, else as usual.
 *
 * @param {URL} folder
 * @param {Promise<PythonImage | null>} keeping
 * @param {OnProgress} [onProgress]
 * @param {(stream: "stdout" | "stderr", text: string) => void} [onOutput]
 * @returns {Promise<{pyodide: Pyodide, isFromImage: boolean}>}
 */
async function bootPyodide(folder, keeping, onProgress, onOutput) {
  // Both are needed in any case; what they lack is told by `loadPyodide`.
  for (const file of ["pyodide.mjs", "pyodide.asm.mjs"]) import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ new URL(file, folder).href).catch(() => {});
  const image = await keeping;
  if (image) {
    try {
      const pyodide = await loadPyodide(folder, { image }, onProgress, onOutput);
      // A module that was seeded before the image was made would give the same numbers at every visit.
      pyodide.runPython('import sys; "random" in sys.modules and sys.modules["random"].seed()');
      return { pyodide, isFromImage: true };
    } catch (error) {
      await dropKept("Python", error);
    }
  }
  return { pyodide: await loadPyodide(folder, {}, onProgress, onOutput), isFromImage: false };
}

/**
 * @param {Pyodide} pyodide
 * @param {Uint8Array<ArrayBuffer>} data
 * @param {"tar" | "wheel"} format
 */
function unpack(pyodide, data, format) {
  if (format === "wheel") {
    pyodide.unpackArchive(data, format);
    return;
  }
  // Python's own `tarfile` takes a seventh of a start.
  const folder = String(pyodide.runPython("import sysconfig; sysconfig.get_path('purelib')"));
  const made = new Set();
  for (const [path, bytes] of filesOf(data)) {
    const place = `${folder}/${path}`;
    const parent = place.slice(0, place.lastIndexOf("/"));
    if (!made.has(parent)) pyodide.FS.mkdirTree(parent);
    made.add(parent);
    pyodide.FS.writeFile(place, bytes);
  }
  pyodide.runPython(FORGET_FOLDERS);
}

/**
 * @param {URL} folder
 * @param {{_makeSnapshot?: boolean, image?: PythonImage}} special To make an image, or to start from one: by options that
 *   Pyodide does not promise to keep.
 * @param {OnProgress} [onProgress]
 * @param {(stream: "stdout" | "stderr", text: string) => void} [onOutput]
 * @returns {Promise<Pyodide>}
 */
export async function loadPyodide(folder, { _makeSnapshot, image }, onProgress, onOutput) {
  const wasm = image?.read("wasm").then(compileBytes);
  const [stdlib, memory] = [image?.read("stdlib"), image?.read("memory")];
  for (const part of [wasm, stdlib, memory]) part?.catch(() => {}); // told where it is awaited
  const url = new URL("pyodide.mjs", folder);
  /** @type {typeof import("pyodide")} */
  let module;
  try {
    module = await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ url.href);
  } catch (cause) {
    throw new EdgeInferError(`Pyodide's file ${url} cannot be loaded`, "backend_unavailable", { hint: NO_PYTHON, cause });
  }
  if (module.version !== PYODIDE_VERSION) {
    throw new EdgeInferError(`${folder} holds Pyodide ${module.version}, expected ${PYODIDE_VERSION}`, "backend_unavailable", {
      hint: NO_PYTHON,
    });
  }
  const kept = wasm && stdlib ? { "pyodide.asm.wasm": await wasm, "python_stdlib.zip": await stdlib } : undefined;
  /** @type {object} */
  const privately = { _makeSnapshot, _loadSnapshot: await memory };
  /** @type {(error: EdgeInferError) => void} */
  let onCut = () => {};
  /** @type {Promise<never>} */
  const cut = new Promise((_, reject) => (onCut = reject)); // Pyodide itself would wait on, for ever
  const restoreFetch = kept ? answerFetches(folder, kept) : reportFetches(folder, onProgress, onCut);
  const restoreCompiling = replaceCompiling(kept ? async () => kept["pyodide.asm.wasm"] : compileResponse);
  try {
    const starting = module.loadPyodide({
      ...privately,
      indexURL: folder.href,
      stdout: (text) => onOutput?.("stdout", text),
      stderr: (text) => onOutput?.("stderr", text),
    });
    return await Promise.race([starting, cut]);
  } catch (cause) {
    if (cause instanceof EdgeInferError) throw cause;
    throw new EdgeInferError(`Pyodide cannot start: ${cause}`, "backend_unavailable", { hint: NO_PYTHON, cause });
  } finally {
    restoreFetch();
    restoreCompiling();
  }
}

/**
 * Replace the worker's `fetch` for Pyodide's own folder while it starts: it fetches by itself, and has no option for another way.
 *
 * @param {URL} folder
 * @param {(name: string, url: URL, original: typeof fetch) => Promise<Response> | undefined} answer
 * @returns {() => void} Ends it.
 */
function replaceFetch(folder, answer) {
  const original = globalThis.fetch;
  /** @type {typeof fetch} */
  const replaced = (input, options) => {
    const url = new URL(input instanceof Request ? input.url : input, globalThis.location?.href);
    const isOwn = url.href.startsWith(folder.href);
    return (isOwn && answer(url.pathname.split("/").pop() ?? "", url, original)) || original(input, options);
  };
  globalThis.fetch = replaced;
  return () => {
    if (globalThis.fetch === replaced) globalThis.fetch = original;
  };
}

/**
 * Report the files that Pyodide fetches: it has no way of its own to tell how far it is.
 *
 * @param {URL} folder
 * @param {OnProgress | undefined} onProgress
 * @param {(error: EdgeInferError) => void} onCut Told that a file did not arrive whole.
 * @returns {() => void} Ends the reporting.
 */
function reportFetches(folder, onProgress, onCut) {
  return replaceFetch(folder, (name, url, fetcher) => {
    const total = FILE_BYTES[/** @type {keyof typeof FILE_BYTES} */ (name)];
    return total === undefined ? undefined : download(url, { phase: "python", total, onProgress, hint: NO_PYTHON, fetcher, onCut });
  });
}

/**
 * Give Pyodide what was kept instead of what it fetches.
 *
 * @param {URL} folder
 * @param {{"pyodide.asm.wasm": WebAssembly.Module, "python_stdlib.zip": Uint8Array<ArrayBuffer>}} kept Its module is given where it
 *   compiles.
 * @returns {() => void} Ends it.
 */
function answerFetches(folder, kept) {
  return replaceFetch(folder, (name) => {
    if (!(name in kept)) return undefined;
    return Promise.resolve(new Response(name === "python_stdlib.zip" ? kept[name] : null));
  });
}

/**
 * Replace how the worker compiles what Pyodide fetches: it compiles by itself, and has no option for another way.
 *
 * @param {(fetched: Response) => Promise<WebAssembly.Module>} compile
 * @returns {() => void} Ends it.
 */
function replaceCompiling(compile) {
  const original = WebAssembly.instantiateStreaming;
  const replaced = /** @type {any} */ (
    async (/** @type {Promise<Response>} */ fetched, /** @type {WebAssembly.Imports} */ imports) => {
      const module = await compile(await fetched);
      return { module, instance: await WebAssembly.instantiate(module, imports) };
    }
  );
  WebAssembly.instantiateStreaming = replaced;
  return () => {
    if (WebAssembly.instantiateStreaming === replaced) WebAssembly.instantiateStreaming = original;
  };
}
