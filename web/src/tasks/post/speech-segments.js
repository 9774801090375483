/** The step `post.speech_segments`: how likely each frame is speech to the stretches of speech. */

import { flat } from "../values.js";
import { reader } from "./outputs.js";

/**
 * @typedef {object} Parameters
 * @property {string | null} tensor
 * @property {number} threshold
 * @property {number | null} end_threshold Speech ends below this; 0.15 under the threshold where it is not given.
 * @property {number} min_speech_ms
 * @property {number} min_silence_ms
 * @property {number} pad_ms How much is added before and after each stretch.
 */

/**
 * It gives `[{start, end, score}]`, in seconds, `score` the highest of the stretch. The rules are those of Silero VAD's
 * `get_speech_timestamps`.
 *
 * @param {Parameters} parameters
 * @param {import("../place.js").Place} place
 * @returns {import("../item.js").Apply}
 */
export function prepare(parameters, place) {
  const read = reader(parameters.tensor, place, "post.speech_segments");
  return (value, item) => {
    const asked = Object.entries(parameters).map(([name, given]) => [name, item.argument(name, given)]);
    const detector = new SpeechDetector(Object.fromEntries(asked), item.rate, item.frame);
    const scores = flat(read(value));
    for (let i = 0; i < scores.length; i++) detector.step(scores[i]);
    return detector.finish();
  };
}

/** Finds stretches of speech, frame by frame. */
export class SpeechDetector {
  #high;
  #low;
  #rate;
  #frame;
  #minSpeech;
  #minSilence;
  #pad;
  /** The sample that the next frame begins with. */
  #at = 0;
  /** @type {number | null} */
  #start = null;
  /** @type {number | null} */
  #quietSince = null;
  #best = 0;
  /** Those that were not given yet. @type {{start: number, end: number, score: number}[]} */
  #found = [];
  /** Where the last one that was given ended. @type {number | undefined} */
  #before;

  /**
   * @param {Parameters} parameters Those of the step.
   * @param {number} rate Samples per second.
   * @param {number} frame Samples of a frame.
   */
  constructor({ threshold, end_threshold, min_speech_ms, min_silence_ms, pad_ms }, rate, frame) {
    this.#high = threshold;
    this.#low = end_threshold ?? Math.max(threshold - 0.15, 0.01);
    this.#rate = rate;
    this.#frame = frame;
    this.#minSpeech = (rate * min_speech_ms) / 1000;
    this.#minSilence = (rate * min_silence_ms) / 1000;
    this.#pad = (rate * pad_ms) / 1000;
  }

  /** @param {number} score How likely the next frame is speech. */
  step(score) {
    const at = this.#at;
    this.#at += this.#frame;
    if (score >= this.#high) {
      this.#quietSince = null;
      if (this.#start === null) [this.#start, this.#best] = [at, score];
    }
    if (this.#start === null) return;
    this.#best = Math.max(this.#best, score);
    if (score >= this.#low) return;
    this.#quietSince ??= at;
    if (at - this.#quietSince >= this.#minSilence) this.#end(this.#quietSince);
  }

  /** @param {number} at */
  #end(at) {
    const start = /** @type {number} */ (this.#start);
    if (at - start > this.#minSpeech) this.#found.push({ start, end: at, score: this.#best });
    this.#start = this.#quietSince = null;
  }

  /** @returns {{start: number, end: number, score: number}[]} The stretches not given yet, that which the sound's end cuts included. */
  finish() {
    if (this.#start !== null) this.#end(this.#at);
    return this.ended();
  }

  /** @returns {{start: number, end: number, score: number}[]} The stretches that have ended since the last call. */
  ended() {
    const [found, before] = [this.#found, this.#before];
    this.#found = [];
    this.#before = found.at(-1)?.end ?? before;
    return found.map(({ start, end, score }, i) => {
      const last = i > 0 ? found[i - 1].end : before;
      const begins = start - Math.min(this.#pad, last === undefined ? start : (start - last) / 2);
      const stops = end + Math.min(this.#pad, i + 1 < found.length ? (found[i + 1].start - end) / 2 : this.#at - end);
      return { start: begins / this.#rate, end: stops / this.#rate, score };
    });
  }
}
