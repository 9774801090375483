/** Answers to live sound, piece by piece. The same as `edge_infer.tasks.live.listening`. */

import { EdgeInferError } from "../../errors.js";
import { chainsOf } from "../definition.js";
import { Item } from "../item.js";
import { SpeechDetector } from "../post/speech-segments.js";
import { flat } from "../values.js";
import { microphone } from "./microphone.js";

/** @typedef {import("../../tensors.js").Tensor} Tensor */
/** @typedef {{samples: Float32Array, lost: number}} Piece Some samples, and how many were dropped before them. */
/**
 * @typedef {object} Listener What answers sounds.
 * @property {import("../definition.js").Definition} definition
 * @property {import("../prepared-steps.js").PreparedSteps} steps
 * @property {(inputs: any, args: Record<string, any>) => Promise<any>} call
 * @property {() => import("../prepared-steps.js").Stream} openStream
 */

/**
 * Give `{start, end, score}` for each stretch of speech when it has ended, or `{start, end, answer}` for windows that overlap by
 * half.
 *
 * @param {Listener} pipeline Of a task that takes sounds.
 * @param {any} source A `MediaStream`, an iterable of samples at the model's rate, or nothing for the microphone.
 * @param {Record<string, any>} args
 * @returns {AsyncGenerator<any>}
 * @throws {EdgeInferError} `unsupported`: the steps do not say how long a frame or a window is, or there is no microphone.
 */
export async function* listen(pipeline, source, args) {
  const steps = chainsOf(pipeline.definition).flat();
  const of = (/** @type {string} */ name, /** @type {string} */ parameter) => steps.find((step) => step.name === name)?.parameters[parameter];
  const rate = of("audio.resample", "rate") ?? of("audio.decode", "rate") ?? 16000;
  const frame = of("audio.frame", "samples");
  const block = frame ?? of("audio.fit", "samples");
  if (block === undefined) {
    throw new EdgeInferError(`${pipeline.definition.task} cannot listen: its steps have neither audio.frame nor audio.fit`, "unsupported", {
      hint: 'add {"step": "audio.fit", "samples": 16000} to the definition',
    });
  }
  const isLive = source === undefined || source === null || (typeof MediaStream !== "undefined" && source instanceof MediaStream);
  const pieces = isLive ? microphone(source, rate, 2 * Math.max(block, rate)) : given(source);
  if (frame !== undefined && pipeline.definition.outputs.at(-1)?.name === "post.speech_segments") {
    yield* segments(pipeline, cut(pieces, block, block), rate, block, of("audio.frame", "context") ?? 0, args);
    return;
  }
  for await (const { samples, start } of cut(pieces, block, Math.max(Math.floor(block / 2), 1))) {
    const answer = await pipeline.call({ array: samples, sampling_rate: rate }, args);
    yield { start: start / rate, end: (start + block) / rate, answer };
  }
}

/** @param {any} source @returns {AsyncGenerator<Piece>} */
async function* given(source) {
  if (typeof source?.[Symbol.iterator] !== "function" && typeof source?.[Symbol.asyncIterator] !== "function") {
    throw new EdgeInferError("there is nothing to listen to", "input_error", { hint: "give a MediaStream, blocks of samples, or nothing for the microphone" });
  }
  for await (const samples of source) {
    if (!ArrayBuffer.isView(samples) && !Array.isArray(samples)) {
      throw new EdgeInferError("a block of sound is not a list of samples", "input_error", { hint: "give Float32Arrays at the model's rate" });
    }
    yield { samples: Float32Array.from(/** @type {any} */ (samples)), lost: 0 };
  }
}

/**
 * Give windows of one size, and the sample that each begins with; what was dropped begins a new window.
 *
 * @param {AsyncIterable<Piece>} pieces
 * @param {number} size
 * @param {number} hop
 * @returns {AsyncGenerator<{samples: Float32Array, start: number}>}
 */
async function* cut(pieces, size, hop) {
  let [held, start] = [new Float32Array(0), 0];
  for await (const { samples, lost } of pieces) {
    if (lost) [held, start] = [new Float32Array(0), start + held.length + lost];
    const joined = new Float32Array(held.length + samples.length);
    joined.set(held);
    joined.set(samples, held.length);
    held = joined;
    for (; held.length >= size; start += hop) {
      yield { samples: held.slice(0, size), start };
      held = held.slice(hop);
    }
  }
}

/**
 * @param {Listener} pipeline
 * @param {AsyncIterable<{samples: Float32Array, start: number}>} frames
 * @param {number} rate
 * @param {number} size
 * @param {number} context
 * @param {Record<string, any>} args
 * @returns {AsyncGenerator<{start: number, end: number, score: number}>}
 */
async function* segments(pipeline, frames, rate, size, context, args) {
  const [{ steps }, item] = [pipeline, new Item(args)];
  const { name: step, parameters } = /** @type {import("../steps.js").Step} */ (pipeline.definition.outputs.at(-1));
  const asked = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, item.argument(name, value)]));
  const detector = new SpeechDetector(/** @type {any} */ (asked), rate, size);
  const output = steps.place.output(parameters.tensor, step);
  let before = new Float32Array(context);
  const stream = pipeline.openStream();
  let at = 0;
  try {
    for await (const { samples, start } of frames) {
      // Dropped sound counts as silence, so that the times of what follows are right.
      for (; at + size <= start; at += size) detector.step(0);
      const part = new Item(args);
      part.before = before;
      const [feeds] = steps.framed(await steps.before({ array: samples, sampling_rate: rate }, args, undefined, part));
      before = Float32Array.of(...before, ...samples).slice(-context || samples.length + context);
      detector.step(flat((await stream.step(feeds))[output])[0]);
      at += size;
      yield* detector.ended();
    }
    yield* detector.finish();
  } finally {
    stream.close();
  }
}
