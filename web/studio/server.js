/** Asks the server that the page came from: raw data by `predict`, tensors by `infer`. */

import { EdgeInferError } from "../src/index.js";
import { DATATYPES, arrayOfDatatype } from "./datatypes.js";

/** @typedef {import("./catalog.js").Model} Model */
/** @typedef {import("../src/tensors.js").Tensor} Tensor */

/**
 * @param {Model} model
 * @param {any} value A `Blob`, a text, or what JSON can say.
 * @param {Record<string, unknown>} parameters
 * @returns {Promise<any>} The answer of the task.
 */
export async function postPredict(model, value, parameters) {
  const query = new URLSearchParams(Object.entries(parameters).map(([name, item]) => [name, typeof item === "string" ? item : JSON.stringify(item)]));
  const path = `${model.name}/predict`;
  if (value instanceof Blob) return post(`${path}?${query}`, value, value.type || "application/octet-stream");
  return post(path, JSON.stringify({ inputs: value, parameters }), "application/json");
}

/**
 * @param {Model} model
 * @param {Record<string, Tensor>} inputs
 * @returns {Promise<Record<string, Tensor>>}
 */
export async function postInfer(model, inputs) {
  const tensors = Object.entries(inputs).map(([name, { data, dtype, shape }]) => {
    const datatype = DATATYPES[dtype];
    if (!datatype) throw new EdgeInferError(`The page cannot send \`${name}\` of ${dtype} as JSON`, "unsupported", { hint: "choose an engine in the page" });
    return { name, shape, datatype, data: Array.from(/** @type {any} */ (data), Number) };
  });
  const { outputs } = await post(`${model.name}/infer`, JSON.stringify({ inputs: tensors }), "application/json");
  return Object.fromEntries(outputs.map((/** @type {any} */ { name, shape, datatype, data }) => [name, arrayOfDatatype(datatype, shape, data)]));
}

/** @param {Model} model @returns {Promise<string>} The variant that the server runs now. */
export async function servedVariant({ name }) {
  return (await ask(`${name}/config`)).parameters.variant.string_value;
}

/** @param {string} path @param {BodyInit} body @param {string} type */
function post(path, body, type) {
  return ask(path, { method: "POST", body, headers: { "Content-Type": type } });
}

/** @param {string} path @param {RequestInit} [request] */
async function ask(path, request) {
  let response;
  try {
    response = await fetch(new URL(`../v2/models/${path}`, import.meta.url), request);
  } catch (cause) {
    throw new EdgeInferError("The server does not answer", "fetch_error", { hint: "start it again: `edge-infer serve`", cause });
  }
  const text = await response.text();
  try {
    const answer = JSON.parse(text);
    if (response.ok) return answer;
    if (answer.error) throw EdgeInferError.fromJSON(answer);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  // A proxy answers for a server that is gone.
  throw new EdgeInferError(`The server answers ${response.status} and nothing that can be read`, "fetch_error", { hint: "look at what `edge-infer serve` prints" });
}
