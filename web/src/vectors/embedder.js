/** The model that makes vectors of texts in the page: `edge_infer/vectors/embedder.py`. */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { sizeOf } from "../tensors.js";

/**
 * @param {string} url A bundle for feature-extraction.
 * @param {(url: string, options: {variant?: string}) => Promise<any>} open Opens its pipeline.
 * @param {string} [apiKey]
 * @returns {Promise<import("./own-index.js").Embedder>}
 * @throws {EdgeInferError} `input_error`: it gives no vector for a text.
 */
export async function embedderOf(url, open, apiKey) {
  const variant = await floatVariant(url, apiKey);
  const pipeline = await open(url, variant ? { variant } : {});
  try {
    return await described(pipeline);
  } catch (error) {
    await pipeline.dispose();
    throw error;
  }
}

/** @param {any} pipeline @returns {Promise<import("./own-index.js").Embedder>} */
async function described(pipeline) {
  const bytes = await pipeline.session.read("manifest.json");
  const manifest = JSON.parse(new TextDecoder().decode(bytes));
  const steps = Object.fromEntries((manifest.pipeline?.outputs ?? []).map((/** @type {any} */ one) => [one.step, one]));
  const embed = async (/** @type {string[]} */ texts) => (await pipeline(texts)).map((/** @type {any} */ one) => vectorOf(one, manifest.name));
  const [probe] = await embed(["a"]);
  const embedding = {
    name: `${manifest.name}.bundle`,
    revision: await sha256(bytes),
    variant: pipeline.session.report().variant,
    pooling: steps["post.pool"]?.method ?? "",
    normalized: "post.normalize" in steps,
    query_prefix: "",
    document_prefix: "",
  };
  return { embed, dimension: probe.length, embedding, close: () => pipeline.dispose() };
}

/** @param {any} answer @param {string} name @returns {ArrayLike<number>} */
function vectorOf({ data, shape }, name) {
  const dims = (shape ?? []).filter((/** @type {number} */ dim) => dim !== 1);
  if (!data || dims.length !== 1 || sizeOf(shape) !== data.length) {
    throw new EdgeInferError(`\`${name}\` does not answer with a vector`, "input_error", { hint: "convert it with the step post.pool" });
  }
  return data;
}

/** @param {string} url @param {string} [apiKey] @returns {Promise<string | undefined>} The variant with float weights, which loses nothing of the nearest. */
async function floatVariant(url, apiKey) {
  const { openBundle } = await import("../bundle/bundle.js");
  try {
    const { manifest } = await openBundle(url, { apiKey });
    const fitting = manifest.variants.filter(({ format, targets = ["any"] }) => format === "onnx" && targets.some((/** @type {string} */ one) => ["any", "web"].includes(one)));
    return fitting.find(({ precision }) => precision === "fp32")?.id;
  } catch {
    return undefined; // offline: the session takes what was kept
  }
}
