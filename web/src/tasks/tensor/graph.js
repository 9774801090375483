/** The step `tensor.graph`: one tensor through a small ONNX model of the bundle, for what no other step says. */

import { EdgeInferError } from "../../errors.js";
import { openGraph, runGraph } from "../graph.js";
import { listed } from "../words.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */

/**
 * The graph has one input and one output, and the steps before it make that input.
 *
 * @param {{file: string}} parameters
 * @param {import("../place.js").Place} place
 * @returns {Promise<import("../item.js").Apply>}
 * @throws {EdgeInferError} `manifest_error`: the graph has several inputs or outputs, or cannot be loaded.
 */
export async function prepare({ file }, place) {
  const graph = await openGraph(place, file);
  const [inputs, outputs] = [graph.inputs, graph.outputs].map((specs) => specs.map(({ name }) => name));
  if (inputs.length !== 1 || outputs.length !== 1) {
    await graph.dispose();
    const found = `\`${file}\` has the inputs ${listed(inputs)} and the outputs ${listed(outputs)}`;
    throw new EdgeInferError(`pipeline: \`tensor.graph\` runs graphs of one input and one output; ${found}`, "manifest_error", {
      hint: "post.graph takes several",
      details: { field: file },
    });
  }
  const apply = async (/** @type {Tensor} */ tensor) => (await runGraph(graph, { [inputs[0]]: tensor }))[outputs[0]];
  return Object.assign(apply, { takes: graph.inputs[0], close: () => graph.dispose() });
}
