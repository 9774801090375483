/** One input, the engines that are there, one clock: each starts from nothing, one after the other, and is timed to its first answer. */

import { fileOf, HAS_SERVER, modelOf } from "./catalog.js";
import { measure } from "./measure.js";
import { bytes, h, milliseconds, notice, say } from "./parts.js";
import { ENGINES } from "./ways.js";

/** @typedef {import("./catalog.js").Entry} Entry */
/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {NonNullable<Entry["variants"]>[number]} Listed */

/** @param {Entry[]} list @returns {Entry | undefined} The first model that needs no engine, and runs by one as well. */
export function racerOf(list) {
  return list.find(({ variants = [] }) => lanesOf(variants).length > 1 && variants.some(({ format }) => format === "compiled"));
}

/** @param {Listed[]} variants @returns {Listed[]} By engine its variant, of one precision where all have it. */
function lanesOf(variants) {
  const smallest = (/** @type {string} */ format, precision = "") => variants.filter((one) => one.format === format && (!precision || one.precision === precision)).sort((a, b) => a.size - b.size)[0];
  const wanted = smallest("compiled")?.precision;
  return Object.values(ENGINES).flatMap(({ format }) => smallest(format, wanted) ?? smallest(format) ?? []);
}

/**
 * @param {Entry} entry
 * @param {HTMLElement} part Where it stands.
 * @returns {() => void} Ends it: the page is left.
 */
export function race(entry, part) {
  const left = new AbortController();
  const lanes = lanesOf(entry.variants ?? []).map((variant) => {
    const [bar, time, answer] = [h("i.meter"), h("span.num.time", "–"), h("p.small.quiet", "waits")];
    const engine = Object.values(ENGINES).find(({ format }) => format === variant.format)?.name ?? "";
    return { variant, bar, time, answer, ms: 0, medianMs: 0, row: h("li", h("p", h("b", engine), h("span.small.quiet", ` ${variant.precision}, ${bytes(variant.size)}`)), time, bar, answer) };
  });
  const words = h("p.verdict", { role: "status" });
  const button = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => start() }, "Start the race"));
  let frame = 0;

  async function start() {
    button.hidden = true;
    words.textContent = "";
    for (const lane of lanes) {
      Object.assign(lane, { ms: 0, medianMs: 0 });
      [lane.time.textContent, lane.answer.textContent] = ["–", "waits"];
      lane.row.classList.remove("won");
    }
    draw();
    try {
      const model = await modelOf(entry);
      const input = await inputOf(model);
      for (const lane of lanes) await run(lane, model, input);
      tell();
    } catch (error) {
      if (left.signal.aborted) return;
      words.replaceChildren(notice("warn", "The race did not end.", error instanceof Error ? error.message : String(error)));
    }
    [button.hidden, button.textContent] = [false, "Race again"];
  }

  /** @param {typeof lanes[number]} lane @param {Model} model @param {import("./measure.js").Input} input */
  async function run(lane, model, input) {
    let begun = 0;
    const tick = () => {
      lane.ms = performance.now() - begun;
      draw();
      frame = requestAnimationFrame(tick);
    };
    try {
      const figures = await measure(model, { variant: lane.variant.id }, input, {
        keep: false,
        signal: left.signal,
        onBegin: () => {
          begun = performance.now();
          lane.answer.textContent = "starts from nothing";
          tick();
        },
        onFirst: ({ firstMs }) => {
          cancelAnimationFrame(frame);
          lane.ms = firstMs;
          draw();
        },
      });
      lane.medianMs = figures.medianMs;
      const fetched = figures.fetched ? `fetched ${bytes(figures.fetched)} · ` : ""; // WebKit does not tell
      lane.answer.textContent = `“${saidOf(figures.answer, model)}” · ${fetched}${milliseconds(figures.medianMs)} for each further answer`;
    } catch (error) {
      if (left.signal.aborted) throw error;
      cancelAnimationFrame(frame);
      lane.ms = 0;
      lane.answer.textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
      draw();
    }
  }

  function draw() {
    const most = Math.max(1, ...lanes.map(({ ms }) => ms));
    for (const { bar, time, ms } of lanes) {
      bar.style.setProperty("--v", String(ms / most));
      time.textContent = ms ? milliseconds(ms) : "–";
    }
  }

  function tell() {
    const ended = lanes.filter(({ medianMs }) => medianMs > 0).sort((a, b) => a.ms - b.ms);
    if (ended.length < 2) return;
    const [first, second] = ended;
    first.row.classList.add("won");
    const quickest = [...ended].sort((a, b) => a.medianMs - b.medianMs)[0];
    const name = (/** @type {typeof first} */ { variant }) => Object.values(ENGINES).find(({ format }) => format === variant.format)?.name;
    const later = quickest === first ? ", and stays the quickest" : `; after that ${name(quickest)} is the quickest`;
    words.textContent = `${name(first)} answers first, ${(second.ms / first.ms).toFixed(1)} times as soon as ${name(second)}${later}. Measured now, in this browser.`;
    say(words.textContent);
  }

  part.replaceChildren(h("header", h("h2", "From nothing to an answer"), h("p.small.quiet", `One input of ${entry.name}. Each engine in turn is fetched, started and asked; what the browser has kept is not fetched again.`)), h("ul.lanes", lanes.map(({ row }) => row)), h(".row", words, button));
  // A host of files may count its bytes, and its visitors theirs.
  if (HAS_SERVER && !(/** @type {any} */ (navigator).connection?.saveData)) setTimeout(() => !left.signal.aborted && start());
  return () => {
    cancelAnimationFrame(frame);
    left.abort();
  };
}

/** @param {Model} model @returns {Promise<import("./measure.js").Input>} A sample of the bundle, one of its golden inputs, or made values. */
async function inputOf(model) {
  const [sample] = model.samples;
  if (model.hasPipeline && sample) return { value: new File([await fileOf(model, sample)], sample), args: {} };
  model.hasPipeline = false;
  if (!model.examples) return { value: (await import("./inputs.js")).dummyInputs(model.inputs), args: {} };
  const { readExamples } = await import("../src/bundle/golden.js");
  return { value: readExamples(await fileOf(model, model.examples))[0].inputs, args: {} };
}

/** @param {any} answer @param {Model} model @returns {string} The best label of an answer. */
function saidOf(answer, { labels, outputs }) {
  if (Array.isArray(answer)) return String(answer[0]?.label ?? "an answer");
  const scores = Array.from(/** @type {ArrayLike<number>} */ (answer[outputs[0]?.name]?.data ?? []), Number);
  const best = scores.indexOf(Math.max(...scores));
  return labels[best] ?? `class ${best}`;
}
