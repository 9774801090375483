/**
 * The steps of pipelines, each found by its name and fetched when a pipeline first uses it.
 *
 * The step `image.resize` is the module `image/resize.js`, and in Python `edge_infer/tasks/image/resize.py`. Its
 * `prepare(parameters, place)` returns the function that does the work: it takes a value and the `Item` that the value
 * belongs to, and returns the next value.
 */

import { EdgeInferError } from "../errors.js";
import { checked, isObject } from "./check-parameters.js";
import { FLOWS, PARAMETERS } from "./parameters.js";
import { didYouMean, listed, shown } from "./words.js";

/** @typedef {import("./item.js").Apply} Apply */
/** @typedef {import("./place.js").Place} Place */
/** @typedef {import("./parameters.js").Declared} Declared */
/** @typedef {{prepare: (parameters: any, place: Place) => Apply | Promise<Apply>}} StepModule */
/**
 * @typedef {object} Step One step of a definition, checked.
 * @property {string} name Such as `image.resize`.
 * @property {Record<string, any>} parameters All of them, the defaults included.
 * @property {Record<string, Declared>} declared What they may be.
 */

/** Written out, so that what bundles a page sees every module. @type {Record<string, () => Promise<StepModule>>} */
const MODULES = {
  "audio.decode": () => import("./audio/decode.js"),
  "audio.fit": () => import("./audio/fit.js"),
  "audio.frame": () => import("./audio/frame.js"),
  "audio.log_mel": () => import("./audio/log-mel.js"),
  "audio.mfcc": () => import("./audio/mfcc.js"),
  "audio.micro_features": () => import("./audio/micro-features.js"),
  "audio.normalize": () => import("./audio/normalize.js"),
  "audio.resample": () => import("./audio/resample.js"),
  "audio.scale": () => import("./audio/scale.js"),
  "image.center_crop": () => import("./image/center-crop.js"),
  "image.decode": () => import("./image/decode.js"),
  "image.flip_channels": () => import("./image/flip-channels.js"),
  "image.letterbox": () => import("./image/letterbox.js"),
  "image.rescale_normalize": () => import("./image/rescale-normalize.js"),
  "image.resize": () => import("./image/resize.js"),
  "image.to_tensor": () => import("./image/to-tensor.js"),
  "post.answer_span": () => import("./post/answer-span.js"),
  "post.boxes": () => import("./post/boxes.js"),
  "post.ctc": () => import("./post/ctc.js"),
  "post.depth": () => import("./post/depth.js"),
  "post.detections": () => import("./post/detections.js"),
  "post.entities": () => import("./post/entities.js"),
  "post.fill_mask": () => import("./post/fill-mask.js"),
  "post.graph": () => import("./post/graph.js"),
  "post.image": () => import("./post/image.js"),
  "post.label": () => import("./post/label.js"),
  "post.mask": () => import("./post/mask.js"),
  "post.nearest": () => import("./post/nearest.js"),
  "post.nms": () => import("./post/nms.js"),
  "post.normalize": () => import("./post/normalize.js"),
  "post.pool": () => import("./post/pool.js"),
  "post.sigmoid": () => import("./post/sigmoid.js"),
  "post.softmax": () => import("./post/softmax.js"),
  "post.speech_segments": () => import("./post/speech-segments.js"),
  "post.tensor": () => import("./post/tensor.js"),
  "post.top_k": () => import("./post/top-k.js"),
  "post.value": () => import("./post/value.js"),
  "tabular.categories": () => import("./tabular/categories.js"),
  "tabular.clip": () => import("./tabular/clip.js"),
  "tabular.columns": () => import("./tabular/columns.js"),
  "tabular.derive": () => import("./tabular/derive.js"),
  "tabular.impute": () => import("./tabular/impute.js"),
  "tabular.scale": () => import("./tabular/scale.js"),
  "tabular.tensor": () => import("./tabular/tensor.js"),
  "tensor.constant": () => import("./tensor/constant.js"),
  "tensor.dequantize": () => import("./tensor/dequantize.js"),
  "tensor.fit": () => import("./tensor/fit.js"),
  "tensor.frames": () => import("./tensor/frames.js"),
  "tensor.graph": () => import("./tensor/graph.js"),
  "tensor.normalize": () => import("./tensor/normalize.js"),
  "tensor.quantize": () => import("./tensor/quantize.js"),
  "tensor.reshape": () => import("./tensor/reshape.js"),
  "text.tokenize": () => import("./text/tokenize.js"),
};

/**
 * Read one step of a manifest.
 *
 * @param {unknown} entry
 * @param {string} where
 * @returns {Step}
 * @throws {EdgeInferError} `manifest_error`: it is not an object, its name is unknown, or a parameter does not fit.
 */
export function readStep(entry, where) {
  if (!isObject(entry) || typeof entry.step !== "string") {
    const hint = '{"step": "image.decode"}';
    throw new EdgeInferError(`${where} is ${shown(entry ?? null)}, expected an object with the name of a step`, "manifest_error", { hint });
  }
  const { step: name, ...given } = entry;
  const known = Object.keys(PARAMETERS);
  if (!known.includes(name)) {
    throw new EdgeInferError(`${where}: there is no step \`${name}\` in this edge-infer`, "manifest_error", {
      hint: didYouMean(name, known) || `update edge-infer, or choose from ${listed(known)}`,
      details: { field: name },
    });
  }
  const declared = PARAMETERS[name];
  return { name, parameters: checked(given, declared, `${where} \`${name}\``), declared };
}

/**
 * Check that each step takes what the one before it gives.
 *
 * @param {Step[]} steps
 * @param {string} begins What the first step is given.
 * @param {string[]} ends What the last step may give.
 * @param {string} where The chain's place, for errors.
 * @throws {EdgeInferError} `manifest_error`: a step cannot stand where it does.
 */
export function checkFlow(steps, begins, ends, where) {
  let [given, before] = [begins, "the chain"];
  for (const { name } of steps) {
    const { takes, gives } = FLOWS[name];
    if (!takes.includes(given)) {
      throw new EdgeInferError(`${where}: \`${name}\` takes ${takes.join(" or ")}, and ${before} gives ${given}`, "manifest_error", {
        hint: `put before it ${bridges(given, takes)}`,
        details: { field: name },
      });
    }
    [given, before] = [gives, `\`${name}\``];
  }
  if (ends.includes(given)) return;
  throw new EdgeInferError(`${where} ends with ${before}, which gives ${given}, expected ${ends.join(" or ")}`, "manifest_error", {
    hint: `put behind it ${bridges(given, ends)}`,
  });
}

/** @param {string} given @param {string[]} wanted @returns {string} The steps that lead to one of the kinds wanted, in words. */
function bridges(given, wanted) {
  const giving = Object.keys(FLOWS).filter((name) => wanted.includes(FLOWS[name].gives));
  const fitting = giving.filter((name) => FLOWS[name].takes.includes(given));
  return fitting.length ? `one of ${listed(fitting)}` : `what leads to one of ${listed(giving)}`;
}

/**
 * @param {Step} step
 * @param {Place} place What the bundle and the model offer, such as files and labels.
 * @returns {Promise<Apply>} The function that does the step's work.
 * @throws {EdgeInferError} `manifest_error`: the bundle or the model lacks what the step needs.
 */
export async function prepareStep({ name, parameters }, place) {
  return (await MODULES[name]()).prepare(parameters, place);
}

/**
 * Prepare the steps of a chain: those before a graph make its input, those after one read its outputs.
 *
 * @param {Step[]} steps
 * @param {Place} place
 * @returns {Promise<Apply[]>}
 * @throws {EdgeInferError} `manifest_error`: the bundle or the model lacks what a step needs.
 */
export async function prepareChain(steps, place) {
  if (!steps.some(({ name }) => name.endsWith(".graph") || name === "tensor.quantize")) return Promise.all(steps.map((step) => prepareStep(step, place)));
  const isBefore = place.input !== "";
  const made = [];
  for (const step of isBefore ? [...steps].reverse() : steps) {
    const apply = await prepareStep(step, place);
    made.push(apply);
    const { takes, gives } = /** @type {any} */ (apply);
    if (isBefore && takes) place = place.making(takes);
    else if (gives) place = place.giving(gives);
  }
  return isBefore ? made.reverse() : made;
}
