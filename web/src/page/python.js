/** The page's handle of a Python in a worker. */

import { downloadBytes } from "../fetch/download.js";

/** @typedef {import("./client.js").WorkerClient} WorkerClient */
/** @typedef {import("./protocol.js").Report} Report */

/** @typedef {Omit<Report, "model" | "variant" | "device" | "storage" | "fromStorage" | "offline" | "notices">} EngineReport */
/** @typedef {EngineReport & {isFromImage: boolean}} PythonReport `isFromImage`: whether a kept image of its memory made the start short. */

/**
 * Python in a worker; made by `loadPython`. Values cross as plain data: numbers, text, lists, dicts, bytes; None is
 * undefined here.
 */
export class PythonWorker {
  #client;
  #report;

  /**
   * @param {WorkerClient} worker
   * @param {PythonReport} report
   */
  constructor(worker, report) {
    this.#client = worker;
    this.#report = report;
  }

  /** @returns {PythonReport} The engine that Python uses, and what was loaded to start it. */
  report() {
    return this.#report;
  }

  /** @returns {Promise<import("./protocol.js").Traffic>} What was loaded until now. */
  traffic() {
    return this.#client.request({ kind: "traffic" });
  }

  /**
   * Run code, with `await` at its top level where it is wanted.
   *
   * @param {string} code
   * @param {Record<string, unknown>} [names] Variables to set first; typed arrays arrive as memoryviews.
   * @returns {Promise<any>} The value of its last expression, as plain data.
   * @throws {EdgeInferError} What edge-infer raised, or code `python_error` with `details.traceback`.
   */
  run(code, names = {}) {
    return this.#client.request({ kind: "execute", code, names });
  }

  /**
   * Call a function of a module.
   *
   * @param {string} module
   * @param {string} name
   * @param {unknown[]} [values] Its positional arguments.
   * @returns {Promise<any>} What it returns, awaited.
   * @throws {EdgeInferError} As `run` does.
   */
  call(module, name, values = []) {
    return this.#client.request({ kind: "call", module, name, values });
  }

  /**
   * Write a file into Python's file system.
   *
   * @param {string} path Relative to Python's working folder.
   * @param {Uint8Array | string} content
   */
  async writeFile(path, content) {
    const data = typeof content === "string" ? new TextEncoder().encode(content) : content.slice();
    await this.#client.request({ kind: "write", path, data }, { transfer: [data.buffer] });
  }

  /**
   * Fetch a file of the server into Python's file system.
   *
   * @param {URL | string} url
   * @param {string} [path] Its path there; the last piece of the URL unless given.
   * @returns {Promise<string>} The path.
   */
  async loadFile(url, path) {
    const place = new URL(url, globalThis.location?.href);
    const name = path ?? place.pathname.split("/").pop() ?? "file";
    await this.writeFile(name, await downloadBytes(place, { phase: "package" }));
    return name;
  }

  /**
   * Fetch a Python file of the server, so that `call` and `import` find it as a module.
   *
   * @param {URL | string} url
   * @returns {Promise<string>} The module's name.
   */
  async importModule(url) {
    return (await this.loadFile(url)).replace(/\.py$/, "");
  }

  /** Stop Python and its engine. */
  dispose() {
    this.#client.close();
  }
}
