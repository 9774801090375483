/** The two ways of the page to recognise a digit: JavaScript only, and Python in the page. */

import { EdgeInferError, load, loadPython } from "../src/index.js";
import { classify } from "./digits.js";

/** @typedef {import("./digits.js").Answer} Answer */
/** @typedef {import("../src/index.js").OnProgress} OnProgress */
/** @typedef {"javascript" | "python"} Mode */
/**
 * @typedef {object} Facts What a runner runs on.
 * @property {string} engine
 * @property {string} engineVersion
 * @property {number} threads
 * @property {boolean} isolated
 * @property {string} variant
 * @property {number} bytesFetched
 * @property {number} bytesLoaded
 * @property {number} [firstMs] From the first request for the model to the first answer.
 */
/**
 * @typedef {object} Runner
 * @property {Facts} facts
 * @property {(pixels: Uint8Array, width: number, height: number) => Promise<Answer>} classify
 */

const APP = new URL("../vendor/examples/digits_app.py", import.meta.url);
const BLANK = new Float32Array(64);
const MODELS = new URL("../models/", import.meta.url);

/** @type {Map<Mode, Promise<Runner>>} */
const runners = new Map();

/**
 * Return the runner of a mode, loaded when it is first asked for. A failure is forgotten, so that it can be tried again.
 *
 * @param {Mode} mode
 * @param {OnProgress} onProgress
 * @returns {Promise<Runner>}
 */
export function runnerOf(mode, onProgress) {
  let runner = runners.get(mode);
  if (!runner) {
    runner = (mode === "python" ? runInPython(onProgress) : runInJavaScript(onProgress)).catch((error) => {
      runners.delete(mode);
      throw error;
    });
    runners.set(mode, runner);
  }
  return runner;
}

/**
 * @param {OnProgress} onProgress
 * @returns {Promise<Runner>}
 */
async function runInJavaScript(onProgress) {
  const url = await modelUrl();
  const start = performance.now();
  const session = await load(url, { onProgress });
  const first = session.inputs[0];
  if (session.inputs.length !== 1 || first.name !== "image" || first.shape.slice(1).join() !== "1,8,8") {
    throw new EdgeInferError(`The model takes \`${first?.name}\` [${first?.shape}], this page draws \`image\` [batch,1,8,8]`, "unsupported_model", {
      hint: "serve the digits model: `edge-infer convert examples/digits/digits.onnx -o digits.bundle`",
    });
  }
  await session.run({ image: { data: BLANK, dtype: "float32", shape: [1, 1, 8, 8] } });
  const firstMs = performance.now() - start;
  return { facts: { ...session.report(), firstMs }, classify: (...drawing) => classify(session, ...drawing) };
}

/**
 * Load the model into an engine of its own, as a page without a compiled variant does, and have it answer once.
 *
 * @param {"ort" | "litert"} engine
 * @returns {Promise<Facts>}
 */
export async function startOf(engine) {
  const url = await modelUrl();
  const start = performance.now();
  const session = await load(url, { backend: engine });
  try {
    await session.run({ image: { data: BLANK, dtype: "float32", shape: [1, 1, 8, 8] } });
    return { ...session.report(), firstMs: performance.now() - start };
  } finally {
    await session.dispose();
  }
}

/**
 * @param {OnProgress} onProgress
 * @returns {Promise<Runner>}
 */
async function runInPython(onProgress) {
  const model = await modelUrl();
  // The model brings its own kernels, and no engine is fetched; where the bundle has engines' variants only, `load` starts one.
  const python = await loadPython({ onProgress, engines: (await hasCompiled(model)) ? ["compiled"] : ["ort"] });
  try {
    const app = await python.importModule(APP);
    const report = await python.call(app, "open_model", [model]);
    const facts = { ...python.report(), ...(await python.traffic()), variant: report.variant };
    // Python's None arrives as undefined.
    const recognise = async (/** @type {unknown[]} */ ...drawing) => {
      const answer = await python.call(app, "classify", drawing);
      return { ...answer, digit: answer.digit ?? null };
    };
    return { facts, classify: recognise };
  } catch (error) {
    python.dispose();
    throw error;
  }
}

/**
 * @param {string} model The address of a bundle.
 * @returns {Promise<boolean>} Whether it has a variant that needs no engine.
 */
async function hasCompiled(model) {
  const response = await fetch(`${model.replace(/\/$/, "")}/manifest.json`);
  if (!response.ok) return false; // `load` says what is wrong
  /** @type {{variants?: {format: string}[]}} */
  const { variants = [] } = await response.json();
  return variants.some(({ format }) => format === "compiled");
}

/** @returns {Promise<string>} The address of the model: `?model=NAME`, or `digits`. */
async function modelUrl() {
  const name = new URLSearchParams(location.search).get("model") ?? "digits";
  let response;
  try {
    response = await fetch(MODELS);
  } catch (cause) {
    throw new EdgeInferError("The server does not answer", "fetch_error", { hint: "start it again: `edge-infer serve`", cause });
  }
  /** @type {{name: string, url: string, error?: import("../src/errors.js").ErrorDocument}[]} */
  const models = response.ok ? (await response.json()).models : [];
  const found = models.find((model) => model.name === name);
  if (found?.error) throw EdgeInferError.fromJSON(found.error);
  if (!found) {
    throw new EdgeInferError(`The server has no model called \`${name}\``, "model_not_found", {
      hint: `make it and serve it: \`edge-infer convert examples/digits/digits.onnx -o ${name}.bundle\` \`edge-infer serve ${name}.bundle\``,
    });
  }
  return new URL(found.url, location.href).href;
}
