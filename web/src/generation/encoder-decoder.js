/** Models with an encoder and a decoder: two graphs of a bundle, run by an engine, token after token; see `edge_infer.generation.encoder_decoder`. */

import { fetchFile, openBundle } from "../bundle/bundle.js";
import { openStore } from "../cache/store.js";
import { sharedEngine } from "../engines/open.js";
import { EdgeInferError } from "../errors.js";
import { Tokenizer } from "../tasks/text/tokenizer.js";

/** @typedef {import("../bundle/manifest.js").Manifest} Manifest */
/** @typedef {import("../engines/ort-heap.js").EngineTensor} EngineTensor */
/** @typedef {import("../engines/ort-session.js").OrtSession} OrtSession */
/** @typedef {Record<string, EngineTensor>} Crossed What the decoder attends to; it stays in the engine. */
/** @typedef {(logits: Float32Array, tokens: readonly number[]) => void} Change Told the logits of a step and the tokens of the answer so far; what it sets to minus infinity is not taken. */
/** @typedef {() => Promise<void>} Pause Awaited after each token: it rejects where the answer is given up. */
/**
 * @typedef {object} SequenceDefinition The field `generate` of a bundle of this kind, checked (docs/concepts/bundle.md).
 * @property {string} architecture
 * @property {number} vocabSize
 * @property {number} context The longest sequence of the decoder; 0 for any.
 * @property {string} tokenizer The path of `tokenizer.json` in the bundle.
 * @property {Record<string, string>} encoders By variant of the decoder, the variant of the encoder.
 * @property {number} start The token that the decoder begins with.
 * @property {number[]} eos
 * @property {string} prefix What stands before every text.
 * @property {Record<string, any>} speech What Whisper's windows and tokens are; empty for models of text.
 */
/**
 * @typedef {object} Asked
 * @property {string} url The bundle's address.
 * @property {string} root The URL under which `src/` and `vendor/` lie.
 * @property {string} [variant] The id of the decoder's variant; the first unless given.
 * @property {number} [threads] Of the engine.
 * @property {string} [apiKey]
 * @property {boolean} keep Whether the files are kept for the next visit.
 * @property {boolean} [selfTest] Whether it has to give the bundle's answers before it is handed over.
 */

const KIND = "encoder-decoder/1";
const KINDS = { text: "string", whole: "number", list: "array", object: "object" };

/**
 * @param {Manifest} manifest
 * @returns {SequenceDefinition}
 * @throws {EdgeInferError} `unsupported`: it says nothing, or is of another kind. `manifest_error`: a field is missing or of another type.
 */
export function sequenceDefinition({ name, generate: entry = {}, variants }) {
  if (entry.kind !== KIND) {
    throw new EdgeInferError(`\`${name}\` is not a model with an encoder and a decoder`, "unsupported", { hint: 'pipeline("text-generation", url)' });
  }
  const definition = {
    architecture: field(entry, "architecture", "text"),
    vocabSize: field(entry, "vocab_size", "whole"),
    context: field(entry, "context", "whole"),
    tokenizer: field(entry, "tokenizer", "text"),
    encoders: field(entry, "encoders", "object"),
    start: field(entry, "start", "whole"),
    eos: field(entry, "eos", "list"),
    prefix: field(entry, "prefix", "text", ""),
    speech: field(entry, "speech", "object", {}),
  };
  const pairs = Object.entries(definition.encoders);
  const ids = variants.map(({ id }) => id);
  if (pairs.length === 0) throw wrong("`generate.encoders` must name a variant for each variant of the decoder");
  const lost = pairs.flat().find((id) => !ids.includes(/** @type {string} */ (id)));
  if (lost !== undefined) throw wrong(`\`generate.encoders\` names \`${lost}\`, which is not a variant`);
  if (![definition.start, ...definition.eos].every((token) => Number.isInteger(token) && token >= 0 && token < definition.vocabSize)) {
    throw wrong("`generate.start` and `generate.eos` must be tokens of the vocabulary");
  }
  return definition;
}

/**
 * @param {Record<string, any>} entry
 * @param {string} name
 * @param {keyof typeof KINDS} kind
 * @param {any} [missing]
 */
function field(entry, name, kind, missing) {
  const value = entry[name] ?? missing;
  const found = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
  if (found !== KINDS[kind] || (kind === "whole" && !(Number.isInteger(value) && value >= 0))) {
    throw wrong(`\`generate.${name}\` is ${JSON.stringify(value)}, expected ${kind === "whole" ? "a whole number" : `a ${kind}`}`);
  }
  return value;
}

/** @param {string} said */
function wrong(said) {
  return new EdgeInferError(`manifest: ${said}`, "manifest_error", { hint: "convert the model again" });
}

/** An encoder and a decoder, loaded. The most likely token is taken. */
export class SequenceModel {
  /**
   * @param {Asked} asked
   * @param {{onProgress?: import("../fetch/download.js").OnProgress, signal?: AbortSignal}} [options]
   * @returns {Promise<SequenceModel>}
   * @throws {EdgeInferError} `unsupported`: the bundle is of another kind. `input_error`: there is no such variant.
   */
  static async open({ url, root, variant: wanted, threads, apiKey, keep, selfTest }, { onProgress, signal } = {}) {
    const store = keep && !url.startsWith("file:") ? await openStore() : undefined;
    const { manifest } = await openBundle(url, { signal, apiKey, store });
    const definition = sequenceDefinition(manifest);
    const choices = Object.keys(definition.encoders);
    const chosen = wanted ?? choices[0];
    if (!choices.includes(chosen)) {
      throw new EdgeInferError(`\`${chosen}\` is not a variant of a decoder here; choose from ${choices.join(", ")}`, "input_error", { details: { allowed: choices } });
    }
    const read = async (/** @type {string} */ path) => (await fetchFile(new URL(url), manifest, path, { onProgress, signal, apiKey, store })).bytes;
    const variants = [definition.encoders[chosen], chosen].map((id) => /** @type {import("../bundle/manifest.js").Variant} */ (manifest.variants.find((one) => one.id === id)));
    const [engine, tokenizer] = await Promise.all([sharedEngine("ort", { root, threads, onProgress }), read(definition.tokenizer)]);
    /** @type {OrtSession[]} */
    const sessions = [];
    try {
      // One after the other: the page has the bytes of one graph at a time.
      for (const { file, options } of variants) sessions.push(engine.createSession(await read(file), { config: options?.["ort-web"] }));
    } catch (error) {
      for (const session of sessions) session.close();
      throw error;
    }
    const vectors = manifest.generate?.vectors;
    const proof = selfTest && typeof vectors === "string" ? await read(vectors) : undefined;
    const pairs = (variants[1].state ?? []).filter(({ kind }) => kind === "pair");
    const states = new Map(pairs.map(({ out = "", in: into = "" }) => [out, into]));
    return Object.assign(new SequenceModel(definition, manifest.task ?? "", chosen, new Tokenizer(tokenizer), sessions, states), { proof, precision: variants[1].precision });
  }

  /**
   * @param {SequenceDefinition} definition
   * @param {string} task What the bundle is for.
   * @param {string} variant
   * @param {Tokenizer} tokenizer
   * @param {OrtSession[]} sessions The encoder and the decoder.
   * @param {Map<string, string>} states By output of the decoder, the input of the next step.
   */
  constructor(definition, task, variant, tokenizer, [encoder, decoder], states) {
    this.definition = definition;
    this.task = task;
    this.variant = variant;
    this.tokenizer = tokenizer;
    this.encoder = encoder;
    this.decoder = decoder;
    this.states = states;
    /** Of the variant. */
    this.precision = "";
    /** The file of the bundle's answers, where it was asked for and is there. @type {Uint8Array | undefined} */
    this.proof = undefined;
  }

  /**
   * @param {string} text
   * @returns {number[]} Its tokens, behind what the bundle puts before every text.
   * @throws {EdgeInferError} `input_error`: there are none, or the model lacks one.
   */
  tokenize(text) {
    const { prefix, vocabSize } = this.definition;
    const { ids } = this.tokenizer.encode(prefix + text, null, { truncation: null, padding: null });
    if (ids.length === 0) throw new EdgeInferError("the text has no tokens", "input_error", { hint: "give a text of at least one character" });
    const wrong = ids.find((token) => token >= vocabSize);
    if (wrong !== undefined) throw new EdgeInferError(`the text has the token ${wrong}, the model has ${vocabSize} tokens`, "input_error");
    return ids;
  }

  /**
   * @param {Record<string, unknown>} feeds
   * @returns {Crossed} To be forgotten by the caller.
   */
  encode(feeds) {
    return /** @type {Crossed} */ (this.encoder.run(feeds, { keep: this.encoder.outputs.map(({ name }) => name) }));
  }

  /**
   * Give the tokens of an answer, the one that ends it left out.
   *
   * @param {Crossed} crossed
   * @param {readonly number[]} prompt The tokens that the decoder is given first.
   * @param {number} most How many tokens are given at most.
   * @param {Pause} pause
   * @param {Change} [change]
   * @returns {Promise<number[]>}
   * @throws {EdgeInferError} `execution_error`: the engine failed, or a logit is not a number.
   */
  async tokens(crossed, prompt, most, pause, change = () => {}) {
    const steps = new Steps(this, crossed);
    /** @type {number[]} */
    const found = [];
    try {
      for (let given = prompt; found.length < most; ) {
        const token = bestToken(steps.logits(given), found, change);
        if (this.definition.eos.includes(token)) break;
        found.push(token);
        given = [token];
        await pause();
      }
    } finally {
      steps.close();
    }
    return found;
  }

  /**
   * @param {Crossed} crossed
   * @param {readonly number[]} prompt
   * @returns {Float32Array} The logits of the token behind a prompt.
   */
  firstLogits(crossed, prompt) {
    const steps = new Steps(this, crossed);
    try {
      return checked(steps.logits(prompt));
    } finally {
      steps.close();
    }
  }

  /** Give the memory of what `encode` returned back. @param {Crossed} crossed */
  forget(crossed) {
    for (const one of Object.values(crossed)) one.close();
  }

  /** Give the memory back. */
  close() {
    this.encoder.close();
    this.decoder.close();
  }
}

/** The decoder with its own keys and values, which stay in the engine from step to step. */
class Steps {
  /** @type {Record<string, any>} */
  #past;
  #model;
  #crossed;

  /** @param {SequenceModel} model @param {Crossed} crossed */
  constructor(model, crossed) {
    this.#model = model;
    this.#crossed = crossed;
    const names = new Set(model.states.values());
    const empty = model.decoder.inputs.filter(({ name }) => names.has(name));
    // Keys and values of no position.
    this.#past = Object.fromEntries(
      empty.map(({ name, shape }) => [name, { data: new Float32Array(0), dtype: "float32", shape: shape.map((dim) => (typeof dim === "number" ? dim : 0)) }]),
    );
  }

  /** @param {readonly number[]} tokens @returns {Float32Array} The logits behind the last of them. */
  logits(tokens) {
    const { decoder, states, definition, variant } = this.#model;
    const feeds = { input_ids: { data: BigInt64Array.from(tokens, BigInt), dtype: "int64", shape: [1, tokens.length] }, ...this.#crossed, ...this.#past };
    const results = decoder.run(feeds, { outputs: ["logits", ...states.keys()], keep: [...states.keys()] });
    this.close();
    for (const [out, into] of states) this.#past[into] = results[out];
    const { data } = /** @type {import("../tensors.js").Tensor} */ (results.logits);
    if (data.length < definition.vocabSize) {
      throw wrong(`\`generate.vocab_size\` is ${definition.vocabSize}, the decoder \`${variant}\` gives ${data.length} logits`);
    }
    return /** @type {Float32Array} */ (data);
  }

  close() {
    for (const one of Object.values(this.#past)) one.close?.();
    this.#past = {};
  }
}

/**
 * @param {Float32Array} logits
 * @param {readonly number[]} tokens
 * @param {Change} change
 * @returns {number} The most likely token, the first of equals.
 */
function bestToken(logits, tokens, change) {
  change(checked(logits), tokens);
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  if (logits[best] > -Infinity) return best;
  throw new EdgeInferError("no token is allowed after those before", "execution_error", { hint: "is the bundle's `generate` right?" });
}

/** @param {Float32Array} logits */
function checked(logits) {
  let total = 0;
  for (const value of logits) total += value;
  if (!Number.isNaN(total)) return logits;
  throw new EdgeInferError("the model's logits are not numbers", "execution_error", { hint: "try the variant onnx/fp32" });
}
