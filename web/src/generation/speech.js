/** Speech to text by Whisper: windows of 30 seconds, the tokens before, and the rules of timestamps; see `edge_infer.generation.speech`. */

import { EdgeInferError } from "../errors.js";
import { prepare as prepareFeatures } from "../tasks/audio/log-mel.js";
import { prepare as prepareResampling } from "../tasks/audio/resample.js";
import { Item } from "../tasks/item.js";
import { readStep } from "../tasks/steps.js";
import { didYouMean, listed } from "../tasks/words.js";
import { exp } from "./exact-math.js";

/** @typedef {import("./encoder-decoder.js").SequenceModel} SequenceModel */
/** @typedef {import("./encoder-decoder.js").Crossed} Crossed */
/** @typedef {import("../tasks/audio/sound.js").Sound} Sound */
/**
 * @typedef {object} Segment A stretch of speech.
 * @property {number} start Seconds from the beginning.
 * @property {number | null} end Likewise; null where the model did not say.
 * @property {number[]} tokens Its tokens, those of its times among them.
 */
/** @typedef {{language?: string | null, task?: string, hasTimes?: boolean}} Asking */

const NUMBERS = /** @type {const} */ (["rate", "mels", "fft", "hop", "samples", "positions", "no_timestamps"]);
const MOST = 2 ** 24;

/** What a bundle says of sounds and of the tokens around a transcript: `generate.speech`, checked. */
class Speech {
  /** @param {Record<string, any>} fields @param {number} vocabSize */
  constructor(fields, vocabSize) {
    for (const name of NUMBERS) {
      if (!(Number.isInteger(fields[name]) && fields[name] >= 1 && fields[name] <= MOST)) throw wrong(name, fields[name], `1 to ${MOST}`);
    }
    const token = (/** @type {string} */ name, /** @type {any} */ value) => {
      if (!(Number.isInteger(value) && value >= 0 && value < vocabSize)) throw wrong(name, value, "a token of the vocabulary");
      return /** @type {number} */ (value);
    };
    const tokens = (/** @type {string} */ name) => {
      const found = fields[name] ?? [];
      if (!Array.isArray(found)) throw wrong(name, found, "a list");
      return found.map((one) => token(name, one));
    };
    const named = (/** @type {string} */ name) => {
      const found = fields[name] ?? {};
      if (typeof found !== "object" || Array.isArray(found)) throw wrong(name, found, "an object");
      return new Map(Object.entries(found).map(([key, one]) => [key, token(name, one)]));
    };
    for (const name of NUMBERS) this[name] = /** @type {number} */ (fields[name]);
    if (this.samples < this.hop) throw wrong("samples", this.samples, `${this.hop} or more`);
    this.noTimestamps = token("no_timestamps", fields.no_timestamps);
    this.firstTime = this.noTimestamps + 1;
    this.languages = named("languages");
    this.tasks = named("tasks");
    this.suppressed = tokens("suppress");
    this.beginSuppressed = tokens("begin_suppress");
    /** @type {number | null} */
    this.maxInitial = Number.isInteger(fields.max_initial_timestamp) ? fields.max_initial_timestamp : null;
    /** Frames of a window. */
    this.frames = Math.floor(this.samples / this.hop);
    /** Seconds between two timestamps. */
    this.unit = this.samples / this.rate / this.positions;
  }

  rate = 0;
  mels = 0;
  fft = 0;
  hop = 0;
  samples = 0;
  positions = 0;
  no_timestamps = 0;
}

/** @param {string} name @param {any} value @param {string} expected */
function wrong(name, value, expected) {
  return new EdgeInferError(`manifest: \`generate.speech.${name}\` is ${JSON.stringify(value)}, expected ${expected}`, "manifest_error");
}

/** Transcribes sounds. */
export class Recognizer {
  #model;
  #speech;
  /** @type {Promise<{resample: import("../tasks/item.js").Apply, features: import("../tasks/item.js").Apply}> | undefined} */
  #steps;

  /**
   * @param {SequenceModel} model
   * @throws {EdgeInferError} `unsupported`: the model is not one of speech. `manifest_error`: the bundle does not say what it must.
   */
  constructor(model) {
    const { speech, architecture, context, eos, vocabSize } = model.definition;
    if (Object.keys(speech).length === 0) {
      throw new EdgeInferError(`a ${architecture} takes text`, "unsupported", { hint: 'pipeline("text2text-generation", url)' });
    }
    if (context < 1 || eos.length === 0) {
      throw new EdgeInferError("manifest: `generate.context` and `generate.eos` of a model of speech must be given", "manifest_error");
    }
    this.#model = model;
    this.#speech = new Speech(speech, vocabSize);
  }

  /**
   * Give the stretches of speech of a sound. A sound of one window is one segment where no times are asked for. Longer ones are
   * always cut by times: a window begins where the last one's speech ended.
   *
   * @param {Sound} sound
   * @param {Asking} asking `language`: detected where it is not given and the model knows several. `task`: `transcribe`, or
   *   `translate` into English. `hasTimes`: whether the model says when each segment begins and ends.
   * @param {import("./encoder-decoder.js").Pause} pause
   * @returns {Promise<Segment[]>}
   * @throws {EdgeInferError} `input_error`: the model knows no such language or task. `execution_error`: the engine failed.
   */
  async segments(sound, { language = null, task = "transcribe", hasTimes = false }, pause) {
    const [model, speech] = [this.#model, this.#speech];
    const { features, count, isLong } = await this.#heard(sound);
    const isTimed = hasTimes || isLong;
    /** @type {Segment[]} */
    const found = [];
    /** @type {number[]} */
    let prompt = [];
    for (let seek = 0; seek < count; ) {
      const length = Math.min(speech.frames, count - seek);
      const crossed = model.encode({ input_features: this.#window(features, count, seek, length) });
      let tokens;
      try {
        if (prompt.length === 0) prompt = this.#prompt(crossed, language, task, isTimed);
        const rules = isTimed ? this.#timed : this.plain;
        tokens = await model.tokens(crossed, prompt, model.definition.context - prompt.length, pause, rules.bind(this));
      } finally {
        model.forget(crossed);
      }
      const offset = (seek * speech.hop) / speech.rate;
      if (!isTimed) return [{ start: offset, end: null, tokens }];
      const { segments, passed } = this.#cut(tokens, offset, length);
      found.push(...segments);
      seek += passed > 0 ? passed : length;
    }
    return found;
  }

  /**
   * The language is English, or the first that the model knows: to hear it is no proof of the model.
   *
   * @param {Sound} sound
   * @returns {Promise<{crossed: Crossed, prompt: number[]}>} What the encoder gives for a sound's first window, and the tokens before a
   *   text without times.
   */
  async firstWindow(sound) {
    const { languages, tasks, frames } = this.#speech;
    const { features, count } = await this.#heard(sound);
    const crossed = this.#model.encode({ input_features: this.#window(features, count, 0, Math.min(frames, count)) });
    const [language = null] = languages.has("en") ? ["en"] : languages.keys();
    const [task = "transcribe"] = tasks.has("transcribe") ? ["transcribe"] : tasks.keys();
    return { crossed, prompt: this.#prompt(crossed, language, task, false) };
  }

  /** @param {readonly number[]} tokens @returns {string} Their text, without times and special tokens. */
  text(tokens) {
    return this.#model.tokenizer.decode(tokens.filter((one) => one < this.#speech.noTimestamps));
  }

  /** @param {Sound} sound @returns {Promise<{features: Float32Array, count: number, isLong: boolean}>} Features [mels, count], of a window or more. */
  async #heard(sound) {
    this.#steps ??= this.#prepare();
    const { resample, features: toFeatures } = await this.#steps;
    const [speech, item] = [this.#speech, new Item({})];
    const { samples } = /** @type {Sound} */ (await resample(sound, item));
    const padded = new Float32Array(Math.max(samples.length, speech.samples));
    padded.set(samples);
    const { data, shape } = await toFeatures({ samples: padded, rate: speech.rate }, item);
    return { features: data, count: shape[1], isLong: samples.length > speech.samples };
  }

  async #prepare() {
    const { rate, fft, hop, mels } = this.#speech;
    const log = readStep({ step: "audio.log_mel", rate, fft, hop, mels, style: "whisper", axes: "mels_first" }, "speech");
    const resample = readStep({ step: "audio.resample", rate }, "speech");
    return { resample: await prepareResampling(/** @type {any} */ (resample.parameters)), features: await prepareFeatures(/** @type {any} */ (log.parameters)) };
  }

  /**
   * @param {Float32Array} features [mels, count]
   * @param {number} count
   * @param {number} seek
   * @param {number} length
   * @returns {import("../tensors.js").Tensor} One window, [1, mels, frames]; what is behind the sound's end is 0, as in transformers.
   */
  #window(features, count, seek, length) {
    const { mels, frames } = this.#speech;
    const data = new Float32Array(mels * frames);
    for (let mel = 0; mel < mels; mel++) data.set(features.subarray(mel * count + seek, mel * count + seek + length), mel * frames);
    return { data, dtype: "float32", shape: [1, mels, frames] };
  }

  /**
   * @param {Crossed} crossed
   * @param {string | null} language
   * @param {string} task
   * @param {boolean} isTimed
   */
  #prompt(crossed, language, task, isTimed) {
    const { languages, tasks, noTimestamps } = this.#speech;
    const prompt = [this.#model.definition.start];
    if (languages.size > 0) prompt.push(this.#language(crossed, language));
    else if (language !== null) throw new EdgeInferError(`the model knows one language, and not \`${language}\` by name`, "input_error", { hint: "leave `language` out" });
    if (tasks.size > 0) {
      const token = tasks.get(task);
      if (token === undefined) throw new EdgeInferError(`the model does not ${task}`, "input_error", { hint: `choose from ${listed([...tasks.keys()])}` });
      prompt.push(token);
    } else if (task !== "transcribe") {
      throw new EdgeInferError(`the model does not ${task}: it knows one language`, "input_error", { hint: "take one of several languages" });
    }
    return isTimed ? prompt : [...prompt, noTimestamps];
  }

  /** @param {Crossed} crossed @param {string | null} language @returns {number} Its token: heard where it is not given. */
  #language(crossed, language) {
    const { languages } = this.#speech;
    if (language !== null) {
      const token = languages.get(language);
      if (token !== undefined) return token;
      const known = [...languages.keys()];
      const hint = didYouMean(language, known) || `such as ${listed(known.slice(0, 6))}`;
      throw new EdgeInferError(`the model does not know the language \`${language}\``, "input_error", { hint, details: { got: language } });
    }
    const logits = this.#model.firstLogits(crossed, [this.#model.definition.start]);
    return [...languages.values()].reduce((best, one) => (logits[one] > logits[best] || (logits[one] === logits[best] && one < best) ? one : best));
  }

  /** Forbid the tokens that the bundle suppresses. @param {Float32Array} logits @param {readonly number[]} tokens */
  plain(logits, tokens) {
    for (const one of this.#speech.suppressed) logits[one] = -Infinity;
    if (tokens.length === 0) for (const one of this.#speech.beginSuppressed) logits[one] = -Infinity;
  }

  /**
   * Times come in pairs, never fall, and stand first; all together may be likelier than the best word.
   *
   * @param {Float32Array} logits
   * @param {readonly number[]} tokens
   */
  #timed(logits, tokens) {
    this.plain(logits, tokens);
    const { firstTime: first, noTimestamps, maxInitial } = this.#speech;
    const times = tokens.filter((one) => one >= first);
    const wasTime = (tokens.at(-1) ?? 0) >= first;
    const wasTimeBefore = tokens.length < 2 || tokens[tokens.length - 2] >= first;
    logits[noTimestamps] = -Infinity;
    if (wasTime && wasTimeBefore) logits.fill(-Infinity, first);
    else if (wasTime) logits.fill(-Infinity, 0, Math.min(...this.#model.definition.eos));
    const last = times.at(-1);
    if (last !== undefined) logits.fill(-Infinity, first, Math.max(first, last + (wasTime && !wasTimeBefore ? 0 : 1)));
    if (tokens.length === 0) {
      logits.fill(-Infinity, 0, first);
      if (maxInitial !== null) logits.fill(-Infinity, first + maxInitial + 1);
    }
    let word = -Infinity;
    for (let i = 0; i < first; i++) if (logits[i] > word) word = logits[i];
    let most = word;
    for (let i = first; i < logits.length; i++) if (logits[i] > most) most = logits[i];
    let total = 0;
    for (let i = first; i < logits.length; i++) if (logits[i] > -Infinity) total += exp(logits[i] - most);
    if (total > (word > -Infinity ? exp(word - most) : 0)) logits.fill(-Infinity, 0, first);
  }

  /**
   * @param {number[]} tokens
   * @param {number} offset Seconds before the window.
   * @param {number} length Its frames.
   * @returns {{segments: Segment[], passed: number}} The segments of a window's tokens, and how many frames they pass.
   */
  #cut(tokens, offset, length) {
    const { firstTime: first, unit, frames, positions, hop, rate } = this.#speech;
    const isTime = tokens.map((one) => one >= first);
    const endsAlone = isTime.length > 1 && !isTime[isTime.length - 2] && isTime[isTime.length - 1];
    const cuts = tokens.flatMap((_, i) => (isTime[i] && isTime[i + 1] ? [i + 1] : []));
    if (cuts.length === 0) {
      const last = tokens.findLast((one) => one >= first);
      const end = last !== undefined && last !== first ? (last - first) * unit : (length * hop) / rate;
      return { segments: [{ start: offset, end: offset + end, tokens }], passed: length };
    }
    if (endsAlone) cuts.push(tokens.length);
    else cuts[cuts.length - 1] += 1;
    /** @type {Segment[]} */
    const segments = [];
    let before = 0;
    cuts.forEach((cut, number) => {
      const part = tokens.slice(before, cut);
      const last = number === cuts.length - 1 && !endsAlone ? part[part.length - 2] : part[part.length - 1];
      segments.push({ start: offset + (part[0] - first) * unit, end: offset + (last - first) * unit, tokens: part });
      before = cut;
    });
    if (endsAlone) return { segments, passed: length };
    return { segments, passed: (tokens[before - 2] - first) * Math.floor(frames / positions) };
  }
}
