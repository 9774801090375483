/** What is chosen and asked on a model's page. Parts subscribe; nothing is drawn anew, so that no input is lost. */

import { say } from "./parts.js";
import { Runner } from "./runner.js";
import { engineOf, variantFor } from "./ways.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("./ways.js").Way} Way */
/**
 * @typedef {object} Listener
 * @property {(way: Way, state: State) => void} [chosen] Another way was chosen, or the first one is known.
 * @property {(loaded: number, total: number, step: string) => void} [progress]
 * @property {(opened: import("./runner.js").Opened) => void} [ready]
 * @property {(answer: any, ms: number, isFirst: boolean) => void} [answered]
 * @property {(error: unknown) => void} [failed]
 * @property {() => void} [closed] The page is left.
 */

const STEPS = { engine: "the engine", model: "the model", python: "Python", package: "edge-infer for Python" };

export class State {
  /** @type {Set<Listener>} */
  #listeners = new Set();
  #turn = 0;
  #isBusy = false;
  /** What is to be answered next; only the last counts. @type {{value: any, args: Record<string, unknown>} | null} */
  #next = null;
  /** What was asked last: it is asked again when another way is chosen. @type {{value: any, args: Record<string, unknown>} | null} */
  #asked = null;
  #isReady = false;
  #isClosed = false;
  #answers = 0;

  /** @param {Model} model @param {Partial<Way>} wished What the address names. */
  constructor(model, wished) {
    this.model = model;
    this.runner = new Runner(model);
    /** @type {Way} */
    this.way = { engine: "ort", variant: model.variants[0]?.id ?? "", device: "wasm", threads: "auto" };
    this.wished = wished;
    this.startMs = 0;
    /** Whether the way is one that somebody chose. */
    this.isChosen = Object.keys(wished).length > 0;
  }

  /** @param {Listener} listener */
  on(listener) {
    this.#listeners.add(listener);
  }

  /** @param {(listener: Listener) => void} tell */
  #tell(tell) {
    for (const listener of this.#listeners) tell(listener);
  }

  /** Load the model the way that the address names, or as `load` chooses. */
  start() {
    return this.#open(this.wished);
  }

  /** @param {Partial<Way>} change */
  choose(change) {
    const way = { ...this.way, ...change };
    if (change.variant !== undefined && way.engine !== "server") way.engine = engineOf(this.model, change.variant);
    if (change.engine !== undefined) way.variant = variantFor(this.model, way.engine, way.variant);
    return this.#open(way);
  }

  /** @param {Partial<Way>} wanted */
  async #open(wanted) {
    if (this.#isClosed) return; // what was measured for a page that is left
    const turn = ++this.#turn;
    this.#isReady = false;
    Object.assign(this.way, wanted);
    this.isChosen ||= Object.keys(wanted).length > 0;
    if (wanted.variant) this.#tell((one) => one.chosen?.(this.way, this));
    /** @type {Map<string, {loaded: number, total: number}>} */
    const files = new Map();
    try {
      /** @type {import("../src/index.js").OnProgress} */
      const onProgress = ({ phase, file, loaded, total }) => {
        files.set(file, { loaded, total });
        const sum = (/** @type {"loaded" | "total"} */ key) => [...files.values()].reduce((all, one) => all + one[key], 0);
        if (turn === this.#turn) this.#tell((one) => one.progress?.(sum("loaded"), sum("total"), `Fetching ${STEPS[phase]}`));
      };
      const opened = await this.runner.open(wanted, { onProgress });
      if (turn !== this.#turn) return;
      const { report } = opened;
      if (report) {
        this.way.variant = report.variant || this.way.variant;
        this.way.engine = engineOf(this.model, this.way.variant);
        this.way.device = report.device === "webgpu" ? "webgpu" : "wasm";
      }
      this.startMs = opened.startMs;
      this.#isReady = true;
      this.#answers = 0;
      this.#tell((one) => one.chosen?.(this.way, this));
      this.#tell((one) => one.ready?.(opened));
      if (this.#asked) this.ask(this.#asked.value, this.#asked.args);
    } catch (error) {
      if (turn === this.#turn) this.#tell((one) => one.failed?.(error));
    }
  }

  /**
   * Answer an input as soon as the model is ready. While an answer is under way only the newest input waits.
   *
   * @param {any} value
   * @param {Record<string, unknown>} [args]
   */
  async ask(value, args = {}) {
    this.#next = this.#asked = { value, args };
    if (!this.#isReady || this.#isBusy) return;
    this.#isBusy = true;
    while (this.#next && this.#isReady) {
      const { value: taken, args: given } = this.#next;
      this.#next = null;
      const turn = this.#turn;
      try {
        const { answer, ms } = await this.runner.answer(taken, given);
        const isFirst = this.#answers++ === 0;
        if (turn === this.#turn) this.#tell((one) => one.answered?.(answer, ms, isFirst));
      } catch (error) {
        if (turn === this.#turn) this.#tell((one) => one.failed?.(error));
      }
    }
    this.#isBusy = false;
  }

  /** @returns {boolean} Whether something was asked that can be asked again. */
  get hasInput() {
    return this.#asked !== null;
  }

  /** The input that was asked last. */
  get asked() {
    return this.#asked;
  }

  /** Give the model back until another way is chosen; what is asked meanwhile is answered then. */
  async pause() {
    this.#turn++;
    this.#isReady = false;
    await this.runner.close().catch((error) => say(String(error)));
  }

  /** Give everything back; the page is left. */
  close() {
    this.#isClosed = true;
    this.#isReady = false;
    this.#turn++;
    this.#tell((one) => one.closed?.());
    this.#listeners.clear();
    this.runner.close().catch((error) => say(String(error)));
  }
}
