/** Runs a model one way at a time: in this page, or on the server. */

import { rootOf } from "../src/fetch/root.js";
import { EdgeInferError, load, pipeline } from "../src/index.js";
import { Session, enter, leave } from "../src/page/session.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("./ways.js").Way} Way */
/** @typedef {import("../src/page/protocol.js").Report} Report */
/**
 * @typedef {object} Opened A model that is ready.
 * @property {Report | null} report Null on the server.
 * @property {number} startMs From the wish to the model being ready.
 */

/** Everything that is asked of it is done one after the other, so that no load meets another. */
export class Runner {
  /** @type {Session | null} */
  #session = null;
  /** @type {import("../src/index.js").Pipeline | null} */
  #call = null;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();
  #isOnServer = false;

  /** @param {Model} model */
  constructor(model) {
    this.model = model;
  }

  /**
   * Load the model one way; what was loaded before is given back first, so that threads and engine begin anew.
   *
   * @param {Partial<Way>} way What is left out is chosen by the rules of `load`.
   * @param {{onProgress?: import("../src/index.js").OnProgress, keep?: boolean}} [options]
   * @returns {Promise<Opened>}
   * @throws {EdgeInferError} As `load` and `pipeline` do.
   */
  open({ engine, variant, device, threads }, { onProgress, keep } = {}) {
    return this.#next(async () => {
      await this.#dispose();
      const start = performance.now();
      this.#isOnServer = engine === "server";
      if (this.#isOnServer) return { report: null, startMs: 0 };
      const options = { variant, device, threads: threads === undefined || threads === "auto" ? undefined : Number(threads), onProgress, keep };
      if (this.model.files) {
        this.#session = await loadModel(this.model, options);
        if (this.model.hasPipeline) this.#call = /** @type {any} */ (await (await import("../src/tasks/pipeline.js")).pipelineOf(this.#session));
      } else if (this.model.hasPipeline) {
        this.#call = await pipeline(this.model.url, options);
        this.#session = this.#call.session;
      } else {
        this.#session = await load(this.model.url, options);
      }
      return { report: this.#session.report(), startMs: performance.now() - start };
    });
  }

  /**
   * Answer one input: raw data where the bundle has a pipeline, else tensors by name.
   *
   * @param {any} value
   * @param {Record<string, unknown>} [args] Arguments of the task.
   * @returns {Promise<{answer: any, ms: number}>}
   * @throws {EdgeInferError} The input does not fit, or the engine or the server fails.
   */
  answer(value, args = {}) {
    return this.#next(async () => {
      const start = performance.now();
      const answer = await this.#answer(value, args);
      return { answer, ms: performance.now() - start };
    });
  }

  /** @param {any} value @param {Record<string, unknown>} args */
  async #answer(value, args) {
    const { model } = this;
    const { postInfer, postPredict } = this.#isOnServer ? await import("./server.js") : /** @type {any} */ ({});
    if (this.#isOnServer) return model.hasPipeline ? postPredict(model, value, args) : postInfer(model, value);
    if (this.#call) return this.#call(value, args);
    if (this.#session) return this.#session.run(value);
    throw new EdgeInferError("The model is not loaded", "input_error", { hint: "choose a way to run it" });
  }

  /** @returns {Promise<number | null>} The bytes of the engine's memory; null where they are not known. */
  memory() {
    return this.#next(async () => (await this.#session?.memory()) ?? null);
  }

  /** Give the model's memory back, after what was asked for before. */
  close() {
    return this.#next(() => this.#dispose());
  }

  async #dispose() {
    const session = this.#session;
    this.#session = this.#call = null;
    await session?.dispose();
  }

  /**
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  #next(work) {
    const result = this.#last.then(work);
    this.#last = result.catch(() => {});
    return result;
  }
}

/**
 * @param {Model} model With an address, or with its files.
 * @param {{variant?: string, device?: "wasm" | "webgpu", threads?: number, keep?: boolean, onProgress?: import("../src/index.js").OnProgress}} [options]
 * @returns {Promise<Session>}
 * @throws {EdgeInferError} As `load` does.
 */
export async function loadModel({ url, files }, options = {}) {
  if (!files) return load(url, options);
  const { variant, device, threads, onProgress } = options;
  const root = rootOf();
  const used = enter(root);
  try {
    return new Session(used, await used.request({ kind: "open", url: "", variant, device, keep: false, settings: { root, threads }, files: [...files] }, { onProgress }));
  } catch (error) {
    leave(used);
    throw error;
  }
}
