/** The code for what is on the screen, to be taken along. */

import { HAS_SERVER } from "./catalog.js";
import { DATATYPES } from "./datatypes.js";
import { h, say, section } from "./parts.js";

/** @typedef {import("./state.js").State} State */
const TABS = HAS_SERVER ? ["Python", "JavaScript", "curl"] : ["Python", "JavaScript"];
const RAW = { image: '"photo.jpg"', sound: '"sound.wav"', text: '"some text"', table: '"row.json"' };

/** @param {State} state @returns {HTMLElement} */
export function code(state) {
  const pre = h("pre", { tabIndex: 0, "aria-label": "Code" });
  let at = 0;
  const buttons = TABS.map((name, i) => h("button", {
    role: "tab",
    id: `tab-${i}`,
    "aria-controls": "code",
    onclick: () => show(i),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: TABS.length - 1 }[event.key];
      if (step === undefined) return;
      show((i + step) % TABS.length);
      buttons[at].focus();
    },
  }, name));
  const copy = h("button.bare", {
    onclick: async () => {
      const isCopied = await navigator.clipboard.writeText(pre.textContent ?? "").then(() => true, () => false);
      if (!isCopied) getSelection()?.selectAllChildren(pre);
      copy.textContent = isCopied ? "Copied" : "Selected: press Ctrl C";
      say(copy.textContent);
    },
  }, "Copy");
  const show = (/** @type {number} */ i) => {
    at = i;
    pre.textContent = [python, javascript, curl][i](state);
    buttons.forEach((button, k) => {
      button.setAttribute("aria-selected", String(k === i));
      button.tabIndex = k === i ? 0 : -1;
    });
  };
  state.on({ chosen: () => show(at), answered: () => show(at) });
  show(0);
  return section("Take it along", "The code for exactly what is on the screen.",
    h(".code", h("header", h("", { role: "tablist", "aria-label": "Language" }, buttons), copy), h("", { id: "code", role: "tabpanel", "aria-label": "Code" }, pre)));
}

/** The most values of a tensor that a command line takes along. */
const MAX_VALUES = 4096;

/** @param {State} state @returns {string} What is on the screen: a text as it is, a file by its name; else the name of one. */
function raw({ model, asked }) {
  if (typeof asked?.value === "string") return JSON.stringify(asked.value);
  if (asked?.value instanceof File) return JSON.stringify(asked.value.name);
  if (asked?.value && !(asked.value instanceof Blob)) return JSON.stringify(asked.value);
  const kind = /^(image|object|key|depth)/.test(model.task) ? "image" : /audio|voice/.test(model.task) ? "sound" : "text";
  return RAW[kind];
}

/** @param {State} state @returns {string} */
function python(state) {
  const { model, way } = state;
  const given = `"${model.name}.bundle", variant="${way.variant}"`;
  if (model.hasPipeline) return `import edge_infer\n\nanswer = edge_infer.pipeline(${given})\nprint(answer(${raw(state)}))`;
  const inputs = model.inputs.map(({ name }) => `"${name}": ${variableOf(name)}`).join(", ");
  return `import edge_infer\n\nsession = edge_infer.load(${given})\nresult = session.run({${inputs}})\nprint(result["${model.outputs[0]?.name ?? "output"}"])`;
}

/** @param {State} state @returns {string} */
function javascript(state) {
  const { model, way } = state;
  const device = way.device === "webgpu" ? ', device: "webgpu"' : "";
  const given = `"${new URL(model.url).pathname}", { variant: "${way.variant}"${device} }`;
  if (model.hasPipeline) return `import { pipeline } from "edge-infer";\n\nconst answer = await pipeline(${given});\nconsole.log(await answer(${raw(state)}));`;
  const inputs = model.inputs.map(({ name }) => `"${name}": ${variableOf(name)}`).join(", ");
  return `import { load } from "edge-infer";\n\nconst session = await load(${given});\nconst result = await session.run({ ${inputs} });\nconsole.log(result["${model.outputs[0]?.name ?? "output"}"].data);`;
}

/** @param {State} state @returns {string} */
function curl(state) {
  const { model } = state;
  const address = new URL(`../v2/models/${model.name}/`, import.meta.url).href;
  if (model.hasPipeline) {
    const isFile = raw(state) === RAW.image || raw(state) === RAW.sound || state.asked?.value instanceof File;
    return isFile ? `curl ${address}predict --data-binary @${raw(state)}` : `curl ${address}predict -H 'Content-Type: application/json' \\\n  -d '${quoted(`{"inputs": ${raw(state)}}`)}'`;
  }
  const request = requestOf(state);
  if (request) return `curl ${address}infer -H 'Content-Type: application/json' \\\n  -d '${quoted(request)}'`;
  return `curl ${address}        # its inputs and outputs\ncurl ${address}infer -H 'Content-Type: application/json' -d @request.json`;
}

/** Stand between single quotes of a shell. @param {string} text */
function quoted(text) {
  return text.replaceAll("'", "'\\''");
}

/** @param {State} state @returns {string} The tensors on the screen as a request; empty where they are too many. */
function requestOf({ asked, model }) {
  const given = /** @type {[string, import("../src/tensors.js").Tensor][]} */ (asked && !model.hasPipeline ? Object.entries(asked.value) : []);
  if (given.length === 0 || given.some(([, { data, dtype }]) => data.length > MAX_VALUES || !DATATYPES[dtype])) return "";
  return JSON.stringify({ inputs: given.map(([name, { data, dtype, shape }]) => ({ name, shape, datatype: DATATYPES[dtype], data: Array.from(/** @type {any} */ (data), Number) })) });
}

/** @param {string} name @returns {string} */
function variableOf(name) {
  return /^[A-Za-z_]\w*$/.test(name) ? name : "values";
}
