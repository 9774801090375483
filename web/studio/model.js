/** The page of a model, made of its manifest: what goes in, the answer, what it costs, proof and code. */

import { addressOf } from "./catalog.js";
import { code } from "./code.js";
import { costs } from "./costs.js";
import { keepAddress, takeInput } from "./link.js";
import { bytes, facts, h, milliseconds, pick, progress, section, table, trouble } from "./parts.js";
import { offlineSwitch } from "./offline.js";
import { proof } from "./proof.js";
import { State } from "./state.js";
import { triesOf } from "./tries.js";
import { deviceOptions, ENGINES, engineOptions, threadOptions, variantOptions, wayOfQuery } from "./ways.js";
import { widgetOf } from "./widgets/registry.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("./ways.js").Way} Way */

/**
 * @param {Model} model
 * @param {URLSearchParams} query The rest of the address: the way to run it, and an input.
 * @returns {Promise<{parts: HTMLElement[], start: () => void, leave: () => void}>}
 */
export async function modelPage(model, query) {
  if (model.task === "text-generation") {
    const { parts, start, leave } = (await import("./chat.js")).chat(model);
    return { parts: [head(model), ...parts], start, leave };
  }
  const state = new State(model, wayOfQuery(model, query));
  const widget = await widgetOf(model, state);
  takeInput(query, widget.link);
  keepAddress(state, widget.link);
  const parts = [head(model), choices(state), bench(state, widget), ...await own(state), costs(state), proof(state), specs(model), code(state)];
  const leave = () => {
    widget.leave?.();
    state.close();
  };
  return { parts, start: () => state.start(), leave };
}

/** @param {State} state @returns {Promise<HTMLElement[]>} What a model of its task does beside its answers. */
async function own(state) {
  const { task, hasPipeline, files } = state.model;
  return task === "feature-extraction" && hasPipeline && !files ? [(await import("./documents.js")).documents(state)] : [];
}

/** @param {Model} model @returns {HTMLElement} */
function head({ name, url, task, chat, version, revision, license, samples, files }) {
  const place = h("");
  // What was dropped has no address to share.
  const share = !files && h("button", { onclick: async () => (await import("./share.js")).share(place) }, "Share this setup");
  const crumbs = [task || "tensors in, tensors out", version && `version ${version}`, revision && `revision ${revision.slice(0, 12)}`, license && `licence ${license}`];
  return h("", h(".row.apart", h("", h(files ? "h2.title" : "h1", name), h("p.lead", `${triesOf(task, chat)}.`), h("p.crumb", crumbs.filter(Boolean).map((text) => h("span", text)))), h(".row", !files && offlineSwitch(samples.map((path) => addressOf(url, path))), share)), place);
}

/** @param {State} state @returns {HTMLElement} */
function choices(state) {
  const { model } = state;
  const picks = {
    engine: pick("Engine", "engine", engineOptions(model), (engine) => state.choose({ engine: /** @type {Way["engine"]} */ (engine) })),
    variant: pick("Variant", "variant", variantOptions(model), (variant) => state.choose({ variant })),
    device: pick("Device", "device", deviceOptions(), (device) => state.choose({ device: /** @type {Way["device"]} */ (device) })),
    threads: pick("Threads", "threads", threadOptions(), (threads) => state.choose({ threads })),
  };
  const [brief, why] = [h("summary", "Setup"), h("p.why", { role: "status" })];
  state.on({
    chosen: (way) => {
      for (const [key, part] of Object.entries(picks)) part.show(way[/** @type {keyof Way} */ (key)]);
      brief.textContent = `Setup: ${ENGINES[way.engine].name} · ${way.variant} · ${way.device === "webgpu" ? "WebGPU" : "CPU"}`;
    },
    ready: ({ report }) => {
      why.textContent = report
        ? [reasonOf(report.why), ...report.fallbacks, ...report.notices].filter(Boolean).map((text) => `${text.replaceAll("`", "").replace(/\.$/, "")}.`).join(" ")
        : "The server answers: the input is sent to it.";
    },
    failed: () => (why.textContent = ""),
  });
  // A wide page shows it without its summary: a window that grows, such as a phone that is turned, opens it.
  const wide = matchMedia("(width > 760px)");
  const root = h("details.setup", { open: wide.matches }, brief, h(".picks", Object.values(picks)), why);
  wide.addEventListener("change", () => root.toggleAttribute("open", wide.matches));
  return root;
}

/**
 * @param {State} state
 * @param {import("./widgets/registry.js").Widget} widget
 * @returns {HTMLElement}
 */
function bench(state, widget) {
  const bar = progress(`Fetching ${state.model.name}`);
  const [news, figures] = [h("", { role: "status" }, bar), h("")];
  /** @type {number[]} */
  let times = [];
  let [firstMs, fetched] = [0, 0];
  state.on({
    progress: (loaded, total, step) => {
      bar.set(loaded, total, loaded === total ? "Starting the engine" : step);
      news.replaceChildren(bar);
    },
    chosen: () => {
      times = [];
      figures.replaceChildren();
    },
    ready: ({ report }) => {
      news.replaceChildren();
      fetched = report?.bytesFetched ?? 0;
      widget.ready?.();
    },
    answered: (answer, ms, isFirst) => {
      news.replaceChildren();
      widget.show(answer);
      if (isFirst) firstMs = state.startMs + ms;
      else times.push(ms);
      figures.replaceChildren(facts([
        ["Start and first answer", milliseconds(firstMs)],
        ["Time per answer (median)", times.length ? milliseconds(median(times)) : "–"],
        ["Fetched", state.way.engine === "server" ? "–" : fetched ? bytes(fetched) : "from cache"],
      ]));
    },
    failed: (error) => news.replaceChildren(trouble(error, h("button", { onclick: () => state.choose({}) }, "Try again"))),
  });
  return h(".bench", widget.stage, h(".answer", news, widget.answer, figures));
}

/** @param {Model} model @returns {HTMLElement} */
function specs({ inputs, outputs, labels }) {
  const rows = /** @type {[string, import("./catalog.js").TensorSpec[]][]} */ ([["input", inputs], ["output", outputs]]).flatMap(([kind, list]) =>
    list.map(({ name, dtype, shape }) => h("tr", h("th", { scope: "row" }, name), h("td", kind), h("td.mono", dtype), h("td.mono", `[${shape.join(", ")}]`))));
  const text = labels.length ? `${labels.length} class name${labels.length > 1 ? "s" : ""}: ${labels.slice(0, 5).join(", ")}${labels.length > 5 ? " …" : ""}` : "";
  const ends = table(["Name", "Side", "Type", "Shape"], rows);
  ends.classList.add("ends");
  return section("Inputs and outputs", text, ends);
}

/** @param {string} why What decided on the variant, as a report says it. @returns {string} The same for a visitor. */
function reasonOf(why) {
  return why.replace(/^asked for/, "You chose this variant").replace(/^rule:?/, "Chosen by rule:").replace(/:$/, "").replace(/^measured:/, "Chosen by measurement:");
}

/** @param {number[]} values @returns {number} */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
