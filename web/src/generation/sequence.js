/** One sequence of a decoder's cache: a prompt is computed in chunks, and what a new one begins with like the old is kept. */

import { EdgeInferError } from "../errors.js";
import { Sampler } from "./sampler.js";

/** @typedef {import("./options.js").GenerationOptions} GenerationOptions */
/** @typedef {import("./sampler.js").Choice} Choice */
/** @typedef {import("./sampler.js").Grammar} Grammar */
/** @typedef {"stop" | "length" | "cancelled"} FinishReason */
/**
 * @typedef {object} TokenDecoder What a sequence needs of a decoder.
 * @property {{vocab_size: number}} config
 * @property {number} context Positions of the cache.
 * @property {number} threads How many compute the next token.
 * @property {(tokens: number[], slots: number[], positions: number[], wanted: number[]) => void} run
 * @property {(index: number) => Float32Array} logits
 * @property {(index: number, count: number) => import("./sampler.js").Ranked[]} top
 * @property {() => void} close
 */

/** Tokens of a prompt in one step: a generation can be given up between two steps. */
const CHUNK = 128;

/** The tokens whose rows the cache holds, from position 0. */
export class Sequence {
  /** @type {number[]} */
  #tokens = [];

  /**
   * @param {TokenDecoder} decoder
   * @param {Iterable<number>} ends Tokens that end a generation, such as `</s>`.
   */
  constructor(decoder, ends) {
    this.decoder = decoder;
    this.ends = new Set(ends);
  }

  /**
   * Check a prompt.
   *
   * @param {readonly number[]} prompt
   * @throws {EdgeInferError} `input_error`: it is empty, longer than the context, or has tokens that the model lacks.
   */
  check(prompt) {
    const { context, config } = this.decoder;
    if (prompt.length === 0) throw new EdgeInferError("the prompt is empty", "input_error", { hint: "write at least one character" });
    if (prompt.length > context) {
      throw new EdgeInferError(`the prompt has ${prompt.length} tokens, the context has room for ${context}`, "input_error", {
        hint: "shorten the prompt or the conversation",
        details: { expected: context, got: prompt.length },
      });
    }
    const wrong = prompt.find((token) => !(token >= 0 && token < config.vocab_size));
    if (wrong !== undefined) throw new EdgeInferError(`the prompt has the token ${wrong}, the model has ${config.vocab_size} tokens`, "input_error");
  }

  /**
   * Begin a generation; the one before must have ended.
   *
   * @param {readonly number[]} prompt
   * @param {GenerationOptions} options
   * @param {Grammar | null} grammar What the answer must be.
   * @returns {Job}
   */
  begin(prompt, options, grammar) {
    this.check(prompt);
    const job = new Job(this, prompt, options, grammar);
    // The last token of the prompt is always computed: its logits choose the first new token.
    let shared = 0;
    while (shared < prompt.length - 1 && this.#tokens[shared] === prompt[shared]) shared += 1;
    this.#tokens.length = shared;
    job.cachedTokens = shared;
    return job;
  }

  /**
   * Compute rows behind what the cache holds.
   *
   * @param {readonly number[]} tokens All tokens of the sequence.
   * @returns {boolean} Whether the logits of the last one are there.
   */
  advance(tokens) {
    const begin = this.#tokens.length;
    const rows = tokens.slice(begin, begin + CHUNK);
    const isLast = begin + rows.length === tokens.length;
    const positions = rows.map((_, i) => begin + i);
    try {
      this.decoder.run(rows, rows.map(() => 0), positions, isLast ? [rows.length - 1] : []);
    } catch (error) {
      this.forget();
      throw error;
    }
    this.#tokens.push(...rows);
    return isLast;
  }

  /** Trust nothing of the cache. */
  forget() {
    this.#tokens = [];
  }
}

/** One generation. */
export class Job {
  #sequence;
  #sampler;
  #grammar;
  #row;

  /**
   * @param {Sequence} sequence
   * @param {readonly number[]} prompt
   * @param {GenerationOptions} options
   * @param {Grammar | null} grammar
   */
  constructor(sequence, prompt, options, grammar) {
    const { decoder } = sequence;
    this.#sequence = sequence;
    this.#sampler = new Sampler(options, prompt, decoder.config.vocab_size);
    this.#grammar = grammar;
    this.#row = { logits: () => decoder.logits(0), top: (/** @type {number} */ count) => decoder.top(0, count) };
    this.options = options;
    this.promptTokens = prompt.length;
    /** The prompt, and behind it the answer. */
    this.tokens = [...prompt];
    /** How many tokens of the prompt were in the cache already. */
    this.cachedTokens = 0;
    /** Why it has ended. @type {FinishReason | null} */
    this.finishReason = null;
  }

  /**
   * Compute the next token, or a chunk of the prompt.
   *
   * @returns {Choice | null} The token; null for a chunk, and where the job ended without one.
   * @throws {EdgeInferError} `execution_error`: the model's numbers are not numbers.
   */
  step() {
    if (!this.#sequence.advance(this.tokens)) return null;
    let choice;
    try {
      choice = this.#sampler.choose(this.#row, this.#grammar);
    } catch (error) {
      this.#sequence.forget(); // rows that gave no numbers are of no use to others
      throw error;
    }
    if (this.#sequence.ends.has(choice.token)) {
      this.finishReason = "stop";
      return null;
    }
    this.tokens.push(choice.token);
    if (this.#grammar?.advance(choice.token)) {
      this.finishReason = "stop";
      return choice;
    }
    // The new token needs a row of its own before another can follow.
    const isFull = this.tokens.length > this.#sequence.decoder.context;
    if (isFull || this.tokens.length - this.promptTokens >= this.options.maxTokens) this.finishReason = "length";
    return choice;
  }
}
