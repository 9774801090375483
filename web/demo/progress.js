/** The progress bar: how much of what a mode needs has been downloaded. */

/** @typedef {import("./runners.js").Mode} Mode */

const STEPS = { engine: "the engine", model: "the model", python: "Python", package: "edge-infer for Python" };

/** @param {string} id @returns {HTMLElement} */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** What has been downloaded, over all files of a mode. */
export class LoadProgress {
  /** @param {Mode} wanted */
  constructor(wanted) {
    this.mode = wanted;
    /** @type {Map<string, {phase: keyof typeof STEPS, loaded: number, total: number}>} */
    this.files = new Map();
    // What a mode will need, so that the bar does not jump back when a further file begins.
    const expected = wanted === "python" ? [9_598_218, 2_545_637] : [];
    this.least = expected.reduce((sum, bytes) => sum + bytes, 0);
    this.draw("Starting", 0, "");
  }

  /** @param {import("../src/fetch/download.js").Progress} news */
  update({ phase, file, loaded, total }) {
    this.files.set(file, { phase, loaded, total });
    let [done, all, longest] = [0, 0, -1];
    // Several files arrive at a time: the one with the most to come names the step.
    let step = phase;
    for (const one of this.files.values()) {
      done += one.loaded;
      all += Math.max(one.total, one.loaded);
      if (one.total - one.loaded > longest) [longest, step] = [one.total - one.loaded, one.phase];
    }
    const part = done / Math.max(all, this.least, 1);
    const isDone = part > 0.999;
    const last = this.mode === "python" ? "Starting Python" : "Starting the model";
    this.draw(isDone ? last : `Loading ${STEPS[step]}`, part, `${megabytes(done)} of ${megabytes(Math.max(all, this.least))}`);
  }

  /** @param {string} step @param {number} part @param {string} amount */
  draw(step, part, amount) {
    element("progress-step").textContent = `${step}…`;
    element("progress-amount").textContent = amount;
    const bar = element("progress-bar");
    bar.style.transform = `scaleX(${Math.min(1, part)})`;
    element("progress").setAttribute("aria-valuenow", String(Math.round(Math.min(1, part) * 100)));
    element("progress").classList.toggle("is-waiting", part > 0.999 || part === 0);
  }
}

/**
 * @param {number} bytes
 * @returns {string}
 */
export function megabytes(bytes) {
  return bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
