/** A model file that is dropped on the page: what is in it, where its bytes are, and a run on made-up inputs. It stays in the page. */

import { load } from "../../src/index.js";
import { dummyInputs } from "../inputs.js";
import { bars, bytes, facts, h, milliseconds, notice, say, section, takesFiles, trouble } from "../parts.js";
import { readOnnx } from "./onnx.js";
import { readTflite } from "./tflite.js";

/** @typedef {import("./onnx.js").Seen} Seen */

/** What a page can hold. */
const MAX_BYTES = 2e9;
const LARGEST = 6;
const RUNS = 15;
const MAX_COLUMNS = 400;
const MAX_ENDS = 12;

/** @returns {{parts: HTMLElement[], leave: () => void}} */
export function inspectPage() {
  const result = h("");
  const drop = h(".stage.drop");
  const open = takesFiles(drop, ".onnx,.tflite,.zip,.bundle", take, takeFolder);
  let leave = () => {};
  drop.append(h(".view", h("", h("p.big", "Drop a model here"), h("p.quiet", "An .onnx or .tflite file, or a bundle: its folder, or a .zip of it. It is read and run in this page; nothing is uploaded."), h("p", h("button.go", { onclick: () => open() }, "Choose a file")))));
  let turn = 0;

  /** @param {File} file */
  async function take(file) {
    const mine = begin();
    if (file.size >= MAX_BYTES) return refuse(`${file.name} is ${bytes(file.size)}.`, "A page can hold about 2 GB. Look at it on your machine: `edge-infer info FILE`");
    if (/\.(zip|bundle)$/.test(file.name)) return takeBundle(mine, file.name, async () => (await import("./dropped.js")).readZip(file));
    try {
      const content = new Uint8Array(await file.arrayBuffer());
      if (mine !== turn) return;
      const isTflite = new TextDecoder().decode(content.subarray(4, 8)) === "TFL3";
      const seen = isTflite ? readTflite(content) : readOnnx(content);
      result.replaceChildren(...views(file, seen));
      say(`${file.name}: ${seen.layers.length} layers, ${bytes(file.size)}.`);
    } catch (error) {
      if (mine !== turn) return;
      if (error instanceof RangeError) refuse(`${file.name} is no model that this page reads.`, file.size ? "It is neither ONNX nor TFLite, or it was cut short. Copy it again." : "The file is empty.");
      else result.replaceChildren(trouble(error));
    }
  }

  /** @param {FileSystemDirectoryEntry} folder */
  function takeFolder(folder) {
    return takeBundle(begin(), folder.name, async () => (await import("./dropped.js")).readFolder(folder));
  }

  /** @param {number} mine @param {string} name @param {() => Promise<import("./dropped.js").Files>} read */
  async function takeBundle(mine, name, read) {
    try {
      const files = await read();
      const { checkedManifest } = await import("./dropped.js");
      const { manifest, labels } = await checkedManifest(files, name);
      if (manifest.chain || manifest.generate) return refuse(`${name} is a ${manifest.chain ? "chain" : "model that generates text"}.`, "Its page needs a server: `edge-infer serve BUNDLE`");
      const sizes = new Map(manifest.variants.map((/** @type {any} */ { id, file }) => [id, files.get(file)?.length ?? 0]));
      const [{ modelOfManifest }, { modelPage }] = await Promise.all([import("../catalog.js"), import("../model.js")]);
      const page = await modelPage({ ...modelOfManifest(manifest, labels, sizes), files }, new URLSearchParams());
      if (mine !== turn) return page.leave();
      leave = page.leave;
      result.replaceChildren(...page.parts);
      page.start();
    } catch (error) {
      if (mine === turn) result.replaceChildren(trouble(error));
    }
  }

  function begin() {
    leave();
    leave = () => {};
    result.replaceChildren();
    return ++turn;
  }

  const refuse = (/** @type {string} */ title, /** @type {string} */ text) => result.replaceChildren(notice("bad", title, text));
  return { parts: [h("h1", "Inspect a model"), drop, result], leave: begin };
}

/** @param {File} file @param {Seen} seen @returns {HTMLElement[]} */
function views(file, seen) {
  const { layers } = seen;
  const weights = layers.reduce((sum, layer) => sum + layer.bytes, 0);
  const most = Math.max(1, ...layers.slice(0, MAX_COLUMNS).map((layer) => layer.bytes));
  const largest = [...layers].sort((a, b) => b.bytes - a.bytes).slice(0, LARGEST).filter((layer) => layer.bytes > 0);
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { operator } of layers) counts.set(operator, (counts.get(operator) ?? 0) + 1);
  const kinds = [...counts].sort((a, b) => b[1] - a[1]);
  const ends = (/** @type {string} */ title, /** @type {import("./onnx.js").End[]} */ list) =>
    h(".tensor", h("h3", title), list.slice(0, MAX_ENDS).map(({ name, dtype, shape }) => h("p.mono.small", `${name}  ${dtype}[${shape.join(", ")}]`)), list.length > MAX_ENDS && h("p.small.quiet", `and ${list.length - MAX_ENDS} more`));
  const custom = kinds.filter(([name]) => name.startsWith("custom")).map(([name]) => name);
  return [
    section(file.name, `${seen.format}, ${seen.version}`,
      facts([["File", bytes(file.size)], ["Weights", bytes(weights)], ["Layers", String(layers.length)], ["Kinds of operators", String(kinds.length)]]),
      h(".two", ends("Inputs", seen.inputs), ends("Outputs", seen.outputs))),
    section("Where the bytes are", `A column is a layer, in the order of the file.${layers.length > MAX_COLUMNS ? ` The first ${MAX_COLUMNS} of ${layers.length}.` : ""}`,
      h(".cols.layers", { role: "img", "aria-label": `${layers.length} layers; the largest, ${largest[0]?.operator ?? "none"}, has ${bytes(largest[0]?.bytes ?? 0)}` }, layers.slice(0, MAX_COLUMNS).map((layer) => h("i", { "--v": layer.bytes / most, title: `${layer.operator}, ${bytes(layer.bytes)}` }))),
      h(".two", h("", h("h3", "Largest layers"), bars(largest.map(({ operator, name, bytes: size }) => ({ text: `${operator} ${name.slice(0, 60)}`, value: size / most, shown: `${bytes(size)} · ${Math.round((100 * size) / (weights || 1))} %` })))),
        h("", h("h3", "Operators"), bars(kinds.slice(0, 8).map(([text, count]) => ({ text, value: count / layers.length, shown: String(count) })))))),
    section("Run here", "On made-up inputs, in this browser.", ...runner(file, seen, custom)),
  ];
}

/** @param {File} file @param {Seen} seen @param {string[]} custom @returns {HTMLElement[]} */
function runner(file, { format, inputs }, custom) {
  const result = h("", { role: "status" });
  const button = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => run() }, "Run on made-up inputs"));
  const other = format === "ONNX" ? "LiteRT.js" : "onnxruntime-web";

  async function run() {
    button.disabled = true;
    result.replaceChildren(h("p.quiet", "Starting the engine…"));
    // The name tells the format; the address holds nothing but the page's own copy.
    const address = URL.createObjectURL(file);
    try {
      const start = performance.now();
      const session = await load(`${address}#model.${format === "ONNX" ? "onnx" : "tflite"}`);
      try {
        const given = dummyInputs(session.inputs ?? inputs);
        await session.run(given);
        const first = performance.now() - start;
        const times = [];
        for (let i = 0; i < RUNS; i++) {
          const begun = performance.now();
          await session.run(given);
          times.push(performance.now() - begun);
        }
        times.sort((a, b) => a - b);
        result.replaceChildren(facts([["Start and first answer", milliseconds(first)], [`Median of ${RUNS}`, milliseconds(times[RUNS >> 1])], ["Slowest", milliseconds(times[RUNS - 1])]]),
          h("p.small.quiet", `Measured now by ${session.report().engine}. ${other} needs another file: edge-infer convert ${file.name} --format ${format === "ONNX" ? "tflite" : "onnx"} -o model.bundle`));
        say("The model has run.");
      } finally {
        await session.dispose();
      }
    } catch (error) {
      result.replaceChildren(trouble(error), custom.length ? h("p.small", `No engine of a page knows ${custom.join(", ")}.`) : h(""));
    } finally {
      URL.revokeObjectURL(address);
      button.disabled = false;
    }
  }
  return [h(".row", button), result];
}
