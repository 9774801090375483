/** What each variant costs in this browser: measured one after the other, when asked. */

import { Runner } from "./runner.js";
import { bytes, h, milliseconds, say, section, table } from "./parts.js";
import { ENGINES, engineOf } from "./ways.js";

/** @typedef {import("./state.js").State} State */
/** Answers that are timed after the first one. */
const RUNS = 15;
const HEADS = ["Variant", "File", "Fetched", "Start and first answer", "Median answer"];

/** @param {State} state @returns {HTMLElement} */
export function costs(state) {
  const { model } = state;
  const note = h("p.small.quiet", { role: "status" }, "An input has to be there first.");
  const lines = model.variants.map(({ id, size }) => {
    const cells = HEADS.slice(2).map((head) => h("td.num", { "data-is": head }, "–"));
    const use = h("button.bare", { onclick: () => state.choose({ variant: id }) }, "Use", h("span.hidden", ` ${id}`));
    const row = h("tr", h("th", { scope: "row" }, id, h("small", ENGINES[engineOf(model, id)].name)), h("td.num", { "data-is": "File" }, bytes(size)), cells, h("td.num", use));
    return { id, row, cells };
  });
  const button = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => measure() }, "Measure here"));
  let isMeasuring = false;

  async function measure() {
    const { asked } = state;
    if (!asked || isMeasuring) return;
    isMeasuring = button.disabled = true;
    // The page's own session would share the engine's start: it is given back first.
    await state.pause();
    for (const { id, cells } of lines) {
      const runner = new Runner(model);
      note.textContent = `Measuring ${id}…`;
      try {
        const { report, startMs } = await runner.open({ variant: id });
        const first = await runner.answer(asked.value, asked.args);
        const times = [];
        for (let i = 0; i < RUNS; i++) times.push((await runner.answer(asked.value, asked.args)).ms);
        times.sort((a, b) => a - b);
        const fetched = report?.bytesFetched ?? 0;
        [fetched ? bytes(fetched) : "from cache", milliseconds(startMs + first.ms), milliseconds(times[RUNS >> 1])].forEach((text, i) => (cells[i].textContent = text));
      } catch (error) {
        cells.forEach((cell) => (cell.textContent = "–"));
        cells[1].textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
      }
      await runner.close();
    }
    note.textContent = `Each variant in a fresh engine on the input above, the median of ${RUNS} answers. What the browser has kept is not fetched again.`;
    say("All variants are measured.");
    isMeasuring = button.disabled = false;
    state.choose({});
  }

  state.on({
    chosen: (way) => {
      for (const { id, row } of lines) row.classList.toggle("on", way.engine !== "server" && id === way.variant);
    },
    answered: () => {
      if (!isMeasuring && note.textContent?.startsWith("An input")) note.textContent = "";
    },
  });
  return section("What it costs here", "", table([...HEADS, h("span.hidden", "Choose")], lines.map(({ row }) => row)), h(".row", button, note));
}
