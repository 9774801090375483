/** A small ONNX model of the bundle, for what no step says: the steps `tensor.graph` and `post.graph` run it. */

import { EdgeInferError } from "../errors.js";
import { batched, rowOf } from "./batching.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("./place.js").Opened} Opened */
/** @typedef {import("./place.js").Place} Place */

/** The engine errors that are about the graph's file. */
const OF_ENGINE = ["backend_error", "backend_unavailable", "unsupported_model", "execution_error"];

/**
 * @param {Place} place
 * @param {string} file The path of the ONNX file in the bundle.
 * @returns {Promise<Opened>}
 * @throws {EdgeInferError} `manifest_error`: it is no ONNX file, or no engine here loads it.
 */
export async function openGraph(place, file) {
  const details = { field: file };
  if (!file.endsWith(".onnx")) throw new EdgeInferError(`pipeline: the graph \`${file}\` is no .onnx file`, "manifest_error", { hint: "save it as ONNX", details });
  if (!place.open) throw new EdgeInferError(`The graph \`${file}\` needs an engine, and nothing here opens one`, "unsupported", { hint: "pipeline(url) of index.js" });
  try {
    return await place.open(file);
  } catch (error) {
    if (!(error instanceof EdgeInferError) || !OF_ENGINE.includes(error.code)) throw error;
    throw new EdgeInferError(`pipeline: the graph \`${file}\` cannot be loaded: ${error.message}`, "manifest_error", { hint: error.hint, details });
  }
}

/**
 * Run a graph on one raw input's tensors: one that lacks the first dimension gets it, of 1, and outputs whose spec begins with the
 * same dimension lose it again.
 *
 * @param {Opened} graph
 * @param {Record<string, Tensor>} tensors A tensor for each of its inputs.
 * @returns {Promise<Record<string, Tensor>>}
 */
export async function runGraph(graph, tensors) {
  const feeds = Object.fromEntries(graph.inputs.map((spec) => [spec.name, batched([tensors[spec.name]], spec, 0)]));
  const outputs = await graph.run(feeds);
  const added = graph.inputs.filter(({ name }) => feeds[name].shape.length > tensors[name].shape.length).map(({ shape }) => shape[0]);
  const alike = new Set(graph.outputs.filter(({ shape }) => added.includes(shape[0])).map(({ name }) => name));
  return Object.fromEntries(Object.entries(outputs).map(([name, one]) => [name, alike.has(name) && one.shape[0] === 1 ? rowOf(one, 0) : one]));
}
