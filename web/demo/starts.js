/** The table of starts: bytes and time to the first answer, of the model that runs and of the engines beside it. */

import { megabytes } from "./progress.js";
import { startOf } from "./runners.js";

/** @typedef {import("./runners.js").Facts} Facts */

/** The engines that can be started too, and what people call them. */
const ENGINES = /** @type {const} */ ({ ort: "onnxruntime-web", litert: "LiteRT.js" });

/** @param {Element} place @param {string} selector @returns {HTMLElement} */
const inside = (place, selector) => /** @type {HTMLElement} */ (place.querySelector(selector));

/** The table, its button, and the figures that were measured in this visit. */
export class Starts {
  /** @param {HTMLElement} place The section that holds them. */
  constructor(place) {
    this.place = place;
    this.rows = inside(place, "#starts-rows");
    /** What the page's worker has fetched so far: its report counts all sessions. */
    this.fetched = 0;
    this.button = /** @type {HTMLButtonElement} */ (inside(place, "#measure"));
    this.button.addEventListener("click", () => this.measure());
  }

  /** @param {Facts} facts Of the model that has started; one without a first answer, as Python's, has no row. */
  show(facts) {
    this.place.hidden = facts.firstMs === undefined;
    if (facts.firstMs === undefined || this.rows.childElementCount > 0) return;
    this.add(facts.variant.startsWith("compiled/") ? "Compiled, no engine" : facts.engine, facts);
  }

  hide() {
    this.place.hidden = true;
  }

  /** Start each engine, and add its figures; an engine that cannot start here says why. */
  async measure() {
    this.button.disabled = true;
    for (const [engine, name] of Object.entries(ENGINES)) {
      this.button.textContent = `Starting ${name}…`;
      try {
        this.add(name, await startOf(/** @type {keyof typeof ENGINES} */ (engine)));
      } catch (error) {
        this.add(name, null, error instanceof Error ? error.message : String(error));
      }
    }
    this.button.hidden = true;
    inside(this.place, "#starts-note").textContent = "Measured in this visit, by this browser; what the browser had kept counts no bytes.";
  }

  /**
   * @param {string} name
   * @param {Facts | null} facts
   * @param {string} [said] What to say where there are none.
   */
  add(name, facts, said = "") {
    const row = document.createElement("tr");
    row.classList.toggle("failed", facts === null);
    const own = (facts?.bytesFetched ?? 0) - this.fetched;
    this.fetched = facts?.bytesFetched ?? this.fetched;
    const bytes = own > 0 ? megabytes(own) : "from cache";
    const ms = facts?.firstMs ?? 0;
    const cells = facts ? [name, facts.variant, bytes, ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`] : [name, said, "–", "–"];
    cells.forEach((text, i) => {
      const cell = document.createElement(i === 0 ? "th" : "td");
      if (i === 0) cell.setAttribute("scope", "row");
      cell.textContent = text;
      row.append(cell);
    });
    this.rows.append(row);
  }
}
