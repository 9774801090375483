/** The same numbers: each variant on the bundle's golden examples here, and one input through JavaScript, Python and the server. */

import { EdgeInferError, loadPython } from "../src/index.js";
import { judgeGolden, readExamples } from "../src/bundle/golden.js";
import { fileOf, HAS_SERVER } from "./catalog.js";
import { badge, bytes, h, say, section, table, trouble } from "./parts.js";
import { dummyInputs } from "./inputs.js";
import { loadModel } from "./runner.js";
import { postInfer, servedVariant } from "./server.js";
import { engineOf } from "./ways.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("../src/tensors.js").Tensor} Tensor */

/** Codes of errors that say why a variant cannot run here at all: that is not a wrong number. */
const REFUSALS = ["unsupported", "unsupported_model", "backend_unavailable"];
/** How Python's memoryview spells a dtype. */
const CODES = /** @type {Record<string, string>} */ ({ float32: "f", float64: "d", int8: "b", uint8: "B", int16: "h", uint16: "H", int32: "i", uint32: "I", int64: "q", uint64: "Q" });
const PYTHON = `import edge_infer
session = edge_infer.load(url, variant=variant, arrays="tensor")
fed = {name: memoryview(data).cast("B").cast(code, shape) for name, (data, code, shape) in given.items()}
{name: value.reshape(-1).tolist() for name, value in session.run(fed).items()}`;

/** @param {State} state @returns {HTMLElement} */
export function proof(state) {
  const { model } = state;
  const hasServer = HAS_SERVER && !model.files;
  const lines = model.variants.map((variant) => {
    const [verdict, why] = [h("td.num", badge("unknown")), h("td.small.wide", "")];
    return { variant, verdict, why, row: h("tr", h("th", { scope: "row" }, variant.id, h("small", bytes(variant.size))), verdict, why) };
  });
  const [big, under] = [h("p.big", { role: "status" }, "–"), h("p.small.quiet", "The same input through JavaScript, through Python in this page and through the server.")];
  const places = (hasServer ? ["Python in this page", "Server"] : []).map((name) => {
    const value = h("dd", "–");
    return { value, row: h("", h("dt", name), value) };
  });
  const news = h("");
  const button = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => run() }, "Run the proof"));

  async function run() {
    button.disabled = true;
    news.replaceChildren();
    try {
      await state.pause();
      await runGoldens();
      if (hasServer) await runPlaces();
      say("The proof has run.");
    } catch (error) {
      news.replaceChildren(trouble(error));
    } finally {
      button.disabled = false;
      state.choose({});
    }
  }

  async function runGoldens() {
    if (!model.examples) {
      for (const { why } of lines) why.textContent = "no golden examples to compare with";
      return;
    }
    const examples = readExamples(await fileOf(model, model.examples));
    for (const { variant, verdict, why } of lines) {
      why.textContent = "running…";
      try {
        const session = await loadModel(model, { variant: variant.id });
        const judged = await judgeGolden(session, examples, variant);
        await session.dispose();
        const wrong = judged.filter((one) => one.why);
        verdict.replaceChildren(badge(wrong.length ? "fail" : "pass"));
        const said = `${judged.length - wrong.length} of ${judged.length} outputs agree with the source`;
        why.replaceChildren(...judged.length === 1 && !wrong.length ? [`${judged[0].name} agrees with the source`] : [said, ...wrong.flatMap((one) => [h("br"), `${one.name}: ${one.why}`])]);
      } catch (error) {
        const isRefused = error instanceof EdgeInferError && REFUSALS.includes(error.code);
        verdict.replaceChildren(badge(isRefused ? "unknown" : "fail"));
        why.textContent = textOf(error);
      }
    }
  }

  async function runPlaces() {
    const { variant } = state.way;
    const isOnScreen = !model.hasPipeline && state.asked !== null;
    let inputs = /** @type {Record<string, Tensor>} */ ({});
    let here = /** @type {Record<string, Tensor>} */ ({});
    const inJavaScript = async (/** @type {string | undefined} */ id) => {
      const session = await loadModel(model, { variant: id });
      const outputs = await session.run(inputs);
      await session.dispose();
      return outputs;
    };
    const byPython = async () => largestDifference(here, await inPython(model.url, variant, engineOf(model, variant), inputs));
    let there = variant;
    const byServer = async () => {
      there = await servedVariant(model);
      return largestDifference(there === variant ? here : await inJavaScript(there), await postInfer(model, inputs));
    };
    try {
      inputs = isOnScreen ? state.asked?.value : dummyInputs(model.inputs);
      here = await inJavaScript(variant);
    } catch (error) {
      [big.textContent, under.textContent] = ["–", textOf(error)];
      return;
    }
    const differences = [];
    for (const [i, ask] of (hasServer ? [byPython, byServer] : []).entries()) {
      const { value } = places[i];
      value.textContent = "running…";
      try {
        const difference = await ask();
        differences.push(difference);
        value.textContent = shown(difference);
      } catch (error) {
        value.textContent = textOf(error);
      }
    }
    big.textContent = differences.length ? shown(Math.max(...differences)) : "–";
    const what = isOnScreen ? "the input on the screen" : "a made input";
    under.textContent = `Largest difference from the same variant by JavaScript in this page, on ${what}: ${variant} in Python, ${there} on the server.`;
  }

  const text = model.examples ? "" : "The bundle has no golden examples: edge-infer convert makes them.";
  return section("The same numbers", text, h(".two", h("", table(["Variant", "Verdict", "Why"], lines.map(({ row }) => row))), hasServer && h(".proof", h("h3", "JavaScript, Python and the server"), big, h("dl.places", places.map(({ row }) => row)), under)), h(".row", button), news);
}

/**
 * @param {string} url
 * @param {string} variant
 * @param {string} engine
 * @param {Record<string, Tensor>} inputs
 * @returns {Promise<Record<string, Tensor>>} What the same input gives in Python in this page.
 */
async function inPython(url, variant, engine, inputs) {
  const given = Object.fromEntries(Object.entries(inputs).map(([name, { data, dtype, shape }]) => {
    if (!CODES[dtype]) throw new EdgeInferError(`The page hands no ${dtype} to Python`, "unsupported");
    return [name, [data, CODES[dtype], shape]];
  }));
  const python = await loadPython({ engines: engine === "litert" ? ["litert"] : ["ort"], keepImage: false });
  try {
    const outputs = await python.run(PYTHON, { url, variant, given });
    return Object.fromEntries(Object.entries(outputs).map(([name, data]) => [name, /** @type {any} */ ({ data })]));
  } finally {
    python.dispose();
  }
}

/** @param {number} difference @returns {string} */
function shown(difference) {
  return difference === 0 ? "0" : difference.toExponential(1);
}

/** @param {unknown} error @returns {string} */
function textOf(error) {
  return error instanceof Error ? error.message.replaceAll("`", "") : String(error);
}

/** @param {Record<string, Tensor>} a @param {Record<string, Tensor>} b @returns {number} Infinity where only one side is finite. */
function largestDifference(a, b) {
  let largest = 0;
  for (const [name, { data }] of Object.entries(a)) {
    const other = b[name]?.data;
    if (!other || other.length !== data.length) return Infinity;
    for (let i = 0; i < data.length; i++) {
      const [x, y] = [Number(data[i]), Number(other[i])];
      if (!Object.is(x, y)) largest = Math.max(largest, Number.isNaN(x - y) ? Infinity : Math.abs(x - y));
    }
  }
  return largest;
}
