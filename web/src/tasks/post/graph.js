/** The step `post.graph`: the model's outputs through a small ONNX model of the bundle, for what no other step says. */

import { EdgeInferError } from "../../errors.js";
import { openGraph, runGraph } from "../graph.js";
import { listed } from "../words.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * The graph's inputs are outputs of the model, by name, and its outputs are read after it. Outputs of the model that the
 * graph does not take stay as they are; one of its own of the same name replaces one.
 *
 * @param {{file: string}} parameters
 * @param {import("../place.js").Place} place
 * @returns {Promise<import("../item.js").Apply>}
 * @throws {EdgeInferError} `manifest_error`: the graph takes what the model does not give, or cannot be loaded.
 */
export async function prepare({ file }, place) {
  const graph = await openGraph(place, file);
  const taken = graph.inputs.map(({ name }) => name);
  const missing = taken.filter((name) => !place.outputs.has(name));
  if (missing.length) {
    await graph.dispose();
    const given = listed([...place.outputs.keys()]);
    throw new EdgeInferError(`pipeline: the graph \`${file}\` takes ${listed(missing)}, and the model gives ${given}`, "manifest_error", {
      hint: "name the graph's inputs as the model's outputs",
      details: { field: missing[0] },
    });
  }
  const kept = new Map([...place.outputs].filter(([name]) => !taken.includes(name)));
  const gives = [...new Map([...kept, ...graph.outputs.map((spec) => /** @type {const} */ ([spec.name, spec]))]).values()];
  const apply = async (/** @type {Record<string, Tensor>} */ outputs) => {
    const made = await runGraph(graph, outputs);
    return { ...Object.fromEntries(Object.entries(outputs).filter(([name]) => kept.has(name))), ...made };
  };
  return Object.assign(apply, { gives, close: () => graph.dispose() });
}
