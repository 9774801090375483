/** The code for what is on the screen, to be taken along. */

import { HAS_SERVER } from "./catalog.js";
import { DATATYPES } from "./datatypes.js";
import { h, say, section } from "./parts.js";

/** @typedef {import("./state.js").State} State */
/** Names that stand for an input that has none: a camera's frame, a recording. */
const RAW = { image: "photo.jpg", sound: "sound.wav", text: "some text" };

/** @param {State} state @returns {HTMLElement} */
export function code(state) {
  const pre = h("pre", { tabIndex: 0, "aria-label": "Code" });
  const names = HAS_SERVER && !state.model.files ? ["Python", "JavaScript", "curl"] : ["Python", "JavaScript"];
  let at = 0;
  const buttons = names.map((name, i) => h("button", {
    role: "tab",
    id: `tab-${i}`,
    "aria-controls": "code",
    onclick: () => show(i),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: names.length - 1 }[event.key];
      if (step === undefined) return;
      show((i + step) % names.length);
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
  return section("Take it along", "The code for what is on the screen; a file stands there by its name.",
    h(".code", h("header", h("", { role: "tablist", "aria-label": "Language" }, buttons), copy), h("", { id: "code", role: "tabpanel", "aria-label": "Code" }, pre)));
}

/** The most values of a tensor that a command line takes along. */
const MAX_VALUES = 4096;

/** @param {State} state @returns {{value: any, isFile: boolean}} What is on the screen, a file by its name; else the name of one. */
function raw({ model, asked }) {
  const value = asked?.value;
  if (value instanceof File) return { value: value.name, isFile: true };
  if (/^(image|object|key|depth)/.test(model.task)) return { value: RAW.image, isFile: true };
  if (/^(audio|automatic|voice)/.test(model.task)) return { value: RAW.sound, isFile: true };
  return { value: value ?? RAW.text, isFile: false };
}

/** @param {any} value What JSON can say. @returns {string} The same in Python. */
function pythonOf(value) {
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${pythonOf(one)}`).join(", ")}}`;
  if (value === null) return "None";
  return typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);
}

/** @param {State} state @returns {string} */
function python(state) {
  const { model, way } = state;
  const given = `"${model.name}.bundle", variant="${way.variant}"`;
  if (model.hasPipeline) {
    const args = Object.entries(state.asked?.args ?? {}).map(([name, value]) => `, ${name}=${pythonOf(value)}`);
    return `import edge_infer\n\nanswer = edge_infer.pipeline(${given})\nprint(answer(${pythonOf(raw(state).value)}${args.join("")}))`;
  }
  const inputs = model.inputs.map(({ name }) => `"${name}": ${variableOf(name)}`).join(", ");
  const shapes = model.inputs.map((spec) => `# ${variableOf(spec.name)}: ${described(spec)}\n`).join("");
  return `import edge_infer\n\nsession = edge_infer.load(${given})\n${shapes}result = session.run({${inputs}})\nprint(result["${model.outputs[0]?.name ?? "output"}"])`;
}

/** @param {State} state @returns {string} */
function javascript(state) {
  const { model, way } = state;
  const device = way.device === "webgpu" ? ', device: "webgpu"' : "";
  const given = `"${model.url ? new URL(model.url).pathname : `/models/${model.name}`}", { variant: "${way.variant}"${device} }`;
  if (model.hasPipeline) {
    const { value, isFile } = raw(state);
    const args = Object.keys(state.asked?.args ?? {}).length ? `, ${JSON.stringify(state.asked?.args)}` : "";
    return `import { pipeline } from "edge-infer";\n\nconst answer = await pipeline(${given});\nconsole.log(await answer(${JSON.stringify(value)}${args}));${isFile ? " // the address of the file, or a File" : ""}`;
  }
  const inputs = model.inputs.map(({ name }) => `"${name}": ${variableOf(name)}`).join(", ");
  const shapes = model.inputs.map((spec) => `// ${variableOf(spec.name)}: ${described(spec)}\n`).join("");
  return `import { load } from "edge-infer";\n\nconst session = await load(${given});\n${shapes}const result = await session.run({ ${inputs} });\nconsole.log(result["${model.outputs[0]?.name ?? "output"}"].data);`;
}

/** @param {import("./catalog.js").TensorSpec} spec @returns {string} */
function described({ dtype, shape }) {
  return `an array of yours, ${dtype} [${shape.join(", ")}]`;
}

/** @param {State} state @returns {string} */
function curl(state) {
  const { model } = state;
  const address = new URL(`../v2/models/${model.name}/`, import.meta.url).href;
  if (model.hasPipeline) {
    const { value, isFile } = raw(state);
    if (isFile) return `curl ${address}predict --data-binary '@${quoted(value)}'`;
    const args = state.asked?.args ?? {};
    const body = Object.keys(args).length ? { inputs: value, parameters: args } : { inputs: value };
    return `curl ${address}predict -H 'Content-Type: application/json' \\\n  -d '${quoted(JSON.stringify(body))}'`;
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
