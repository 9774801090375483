/** What each way costs in this browser: measured one after the other as soon as the table is looked at, each in an engine of its own. */

import { bytes, h, milliseconds, say, section, table } from "./parts.js";
import { measure, RUNS } from "./measure.js";
import { HAS_SERVER } from "./catalog.js";
import { ENGINES, engineOf } from "./ways.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./ways.js").EngineId} EngineId */
/** Larger models than these are measured when that is asked for: a visitor may pay for each byte. */
const MAX_UNASKED = 4e6;
/** How long the visitor's own input rests before anything is measured beside it. */
const REST_MS = 1000;
const HEADS = ["Variant", "File", "Fetched", "Start and first answer", "Median answer", "Memory"];

/** @param {State} state @returns {HTMLElement} */
export function costs(state) {
  const { model } = state;
  const order = Object.keys(ENGINES);
  const ways = model.variants.map(({ id, size }) => ({ id, size, engine: engineOf(model, id) })).sort((a, b) => order.indexOf(a.engine) - order.indexOf(b.engine));
  const own = HAS_SERVER && !model.files ? [{ id: "", size: 0, engine: /** @type {EngineId} */ ("server") }] : [];
  const note = h("p.small.quiet", { role: "status" }, "An input has to be there first.");
  const lines = [...ways, ...own].map(({ id, size, engine }) => {
    const cells = HEADS.slice(2).map((head) => h("td.num", { "data-is": head }, "–"));
    const way = engine === "server" ? { engine } : { variant: id };
    const use = h("button.bare", { onclick: () => state.choose(way) }, "Use", h("span.hidden", ` ${id || "the server"}`));
    const row = h("tr", h("th", { scope: "row" }, id || "server", h("small", id ? ENGINES[engine].name : "the input is sent there")), h("td.num", { "data-is": "File" }, size ? bytes(size) : "–"), cells, h("td.num", use));
    return { id, engine, way, row, cells };
  });
  const total = ways.reduce((sum, { size }) => sum + size, 0);
  const isLarge = total > MAX_UNASKED || Boolean(/** @type {any} */ (navigator).connection?.saveData);
  const button = /** @type {HTMLButtonElement} */ (h("button", { disabled: true, onclick: () => run() }, isLarge ? `Measure here: ${bytes(total)}` : "Measure here"));
  const left = new AbortController();
  let isMeasuring = false;

  async function run() {
    const { asked } = state;
    if (!asked || isMeasuring) return;
    isMeasuring = button.disabled = true;
    const firsts = lines.map(() => 0);
    for (const [i, { id, way, cells }] of lines.entries()) {
      note.textContent = `Measuring ${id || "the server"}…`;
      try {
        const { threads, device } = state.way;
        const { fetched, firstMs, medianMs, memory } = await measure(model, { ...way, threads, device }, asked, { signal: left.signal });
        firsts[i] = firstMs;
        const texts = [fetched === null ? "–" : fetched ? bytes(fetched) : "from cache", milliseconds(firstMs), milliseconds(medianMs), memory ? bytes(memory) : "–"];
        texts.forEach((text, k) => cells[k].replaceChildren(text));
        const most = Math.max(...firsts);
        lines.forEach((line, k) => firsts[k] && line.cells[1].replaceChildren(milliseconds(firsts[k]), h("i.meter", { "--v": firsts[k] / most, "aria-hidden": true })));
      } catch (error) {
        if (left.signal.aborted) return;
        cells.forEach((cell) => cell.replaceChildren("–"));
        cells[1].textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
      }
    }
    note.textContent = `Each in an engine of its own that starts from nothing, on the input above: the median of ${RUNS} answers, and the engine's memory after them. What the browser has kept is not fetched again.`;
    say("All variants are measured.");
    button.textContent = "Measure again";
    isMeasuring = button.disabled = false;
  }

  let [isSeen, timer] = [false, 0];
  const settle = () => {
    clearTimeout(timer);
    if (isSeen && state.hasInput && !isLarge && button.textContent === "Measure here") timer = window.setTimeout(run, REST_MS);
  };
  const eye = new IntersectionObserver(([{ isIntersecting }]) => ((isSeen = isIntersecting), settle()));
  const facts = table([...HEADS, h("span.hidden", "Choose")], lines.map(({ row }) => row));
  facts.classList.add("costs");
  const part = section("What it costs here", "", facts, h(".row", button, note));
  eye.observe(part);
  state.on({
    chosen: (way) => {
      for (const { id, engine, row } of lines) row.classList.toggle("on", way.engine === "server" ? engine === "server" : id === way.variant);
    },
    answered: () => {
      if (isMeasuring) return;
      button.disabled = false;
      if (note.textContent?.startsWith("An input")) note.textContent = "";
      settle();
    },
    closed: () => {
      clearTimeout(timer);
      eye.disconnect();
      left.abort();
    },
  });
  return part;
}
