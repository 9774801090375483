/** The demo page: draw a digit, and see what the model takes it for. */

import { Pad } from "../studio/pad.js";
import { LoadProgress, megabytes } from "./progress.js";
import { runnerOf } from "./runners.js";
import { Starts } from "./starts.js";

/** @typedef {import("./runners.js").Mode} Mode */
/** @typedef {import("./digits.js").Answer} Answer */
/** @typedef {import("../src/index.js").EdgeInferError} EdgeInferError */

/** @param {string} id @returns {HTMLElement} */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

const pad = new Pad(/** @type {HTMLCanvasElement} */ (byId("pad")), () => recognise());
/** @type {Mode} */
let mode = "javascript";
/** @type {import("./runners.js").Runner | null} */
let runner = null;
let isBusy = false;
let isStale = false;
let spoken = "";
let speaking = 0;

const starts = new Starts(byId("starts"));
const bars = buildChart(byId("chart"));
buildSamples(byId("samples"));
byId("clear").addEventListener("click", () => pad.clear());
byId("pad").addEventListener("keydown", (event) => {
  if (event.key === "Escape" || event.key === "Delete" || event.key === "Backspace") pad.clear();
});
byId("retry").addEventListener("click", () => load(mode));
for (const input of document.querySelectorAll("input[name=mode]")) {
  input.addEventListener("change", () => load(/** @type {Mode} */ (/** @type {HTMLInputElement} */ (input).value)));
}
const asked = new URLSearchParams(location.search).get("mode");
const first = asked === "python" ? "python" : "javascript";
byId(`mode-${first}`).setAttribute("checked", "");
load(first);

/** @param {Mode} wanted */
async function load(wanted) {
  mode = wanted;
  runner = null;
  show("loading");
  showFacts(null);
  starts.hide();
  const progress = new LoadProgress(wanted);
  try {
    const loaded = await runnerOf(wanted, (news) => mode === wanted && progress.update(news));
    if (mode !== wanted) return;
    runner = loaded;
    showFacts(loaded.facts);
    starts.show(loaded.facts);
    show("answer");
    recognise();
  } catch (error) {
    if (mode === wanted) showError(error);
  }
}

/** Run the model on what is on the pad now; changes that come meanwhile wait, and only the last of them counts. */
async function recognise() {
  byId("prompt").hidden = !pad.isEmpty;
  if (isBusy || !runner) {
    isStale = true;
    return;
  }
  isBusy = true;
  do {
    isStale = false;
    /** @type {import("./runners.js").Runner} */
    const current = runner;
    const { pixels, width, height } = pad.read();
    const start = performance.now();
    try {
      const answer = await current.classify(pixels, width, height);
      if (current === runner) showAnswer(answer, performance.now() - start);
    } catch (error) {
      if (current === runner) showError(error);
    }
  } while (isStale && runner);
  isBusy = false;
}

/**
 * @param {Answer} answer
 * @param {number} ms From the pixels to the scores.
 */
function showAnswer({ digit, scores, image }, ms) {
  byId("digit").textContent = digit === null ? "" : String(digit);
  byId("answer").classList.toggle("is-empty", digit === null);
  byId("certainty").textContent = digit === null ? "Draw a digit" : `${percent(scores[digit])} sure`;
  bars.forEach(({ row, fill, value }, i) => {
    const score = scores[i] ?? 0;
    fill.style.transform = `scaleX(${score})`;
    value.textContent = digit === null ? "" : percent(score);
    row.classList.toggle("is-best", i === digit);
  });
  showImage(image);
  if (digit !== null) byId("fact-time").textContent = `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  // Spoken only when the drawing rests, so that a screen reader is not flooded.
  clearTimeout(speaking);
  const words = digit === null ? "" : `${WORDS[digit]}, ${percent(scores[digit])} sure`;
  speaking = window.setTimeout(() => {
    if (words !== spoken) byId("spoken").textContent = spoken = words;
  }, 500);
}

/** @param {number[]} image The 64 values that the model saw. */
function showImage(image) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId("seen"));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = context.createImageData(8, 8);
  image.forEach((value, i) => (pixels.data[4 * i + 3] = Math.round(value * 255)));
  context.putImageData(pixels, 0, 0);
}

/** @param {import("./runners.js").Facts | null} facts */
function showFacts(facts) {
  const { engine = "", engineVersion = "", threads = 1, isolated = true, variant = "", bytesFetched = 0, bytesLoaded = 0 } = facts ?? {};
  const none = "–";
  byId("fact-engine").textContent = facts ? `${engine} ${engineVersion}` : none;
  byId("fact-threads").textContent = facts ? `${threads} ${threads === 1 ? "thread" : "threads"}` : none;
  byId("fact-variant").textContent = facts ? variant : none;
  byId("fact-time").textContent = none;
  byId("fact-bytes").textContent = facts ? (bytesFetched > 0 ? megabytes(bytesFetched) : "from cache") : none;
  byId("fact-bytes").title = facts ? `${megabytes(bytesLoaded)} unpacked` : "";
  byId("note").hidden = isolated;
}

/** @param {"loading" | "answer" | "error"} state */
function show(state) {
  byId("result").dataset.state = state;
  byId("loading").hidden = state !== "loading";
  byId("error").hidden = state !== "error";
  byId("answer").hidden = state !== "answer";
}

/** @param {unknown} thrown */
function showError(thrown) {
  const error = /** @type {Partial<EdgeInferError> & {message?: string}} */ (thrown);
  byId("error-message").textContent = unquoted(error.message ?? String(thrown));
  const hint = byId("error-hint");
  hint.replaceChildren();
  // Commands are written between backticks: each gets a line of its own, ready to be copied.
  (error.hint ?? "").split("`").forEach((text, i) => {
    const part = document.createElement(i % 2 === 1 ? "code" : "span");
    part.textContent = text.trim();
    if (part.textContent) hint.append(part);
  });
  const trace = String(error.details?.traceback ?? "");
  byId("error-trace").textContent = trace;
  byId("error-details").hidden = trace === "";
  show("error");
  runner = null;
}

/**
 * @param {HTMLElement} list
 * @returns {{row: HTMLElement, fill: HTMLElement, value: HTMLElement}[]}
 */
function buildChart(list) {
  return WORDS.map((_, digit) => {
    const row = document.createElement("li");
    const [label, track, fill, value] = ["span", "span", "span", "span"].map((tag) => document.createElement(tag));
    label.className = "bar-label";
    label.textContent = String(digit);
    track.className = "bar-track";
    fill.className = "bar-fill";
    value.className = "bar-value";
    track.append(fill);
    row.append(label, track, value);
    list.append(row);
    return { row, fill, value };
  });
}

/** @param {HTMLElement} place */
function buildSamples(place) {
  WORDS.forEach((word, digit) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = String(digit);
    button.setAttribute("aria-label", `Draw a ${word}`);
    button.addEventListener("click", () => pad.draw(digit));
    place.append(button);
  });
}

/** @param {number} score */
function percent(score) {
  return `${score > 0.99 && score < 0.995 ? 99 : Math.round(score * 100)}%`;
}

/** @param {string} text */
function unquoted(text) {
  return text.replaceAll("`", "");
}
