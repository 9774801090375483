/** A model that generates text, on the thread that calls it: prompts to tokens, and tokens to the pieces of an answer. */

import { EdgeInferError } from "../errors.js";
import { Answer } from "./answer.js";
import { optionsOf } from "./options.js";
import { Sequence } from "./sequence.js";
import { Vocabulary } from "./vocabulary.js";

/** @typedef {{role: string, content?: any} & Record<string, any>} Message */
/**
 * @typedef {object} TokenLogprob How likely a token was by the model alone.
 * @property {number} token Its id.
 * @property {string} text
 * @property {number} logprob The natural logarithm of its probability.
 * @property {{token: number, text: string, logprob: number}[]} top The best tokens.
 */
/** @typedef {{promptTokens: number, completionTokens: number, cachedTokens: number}} Usage Tokens; those of the prompt that were in the cache already. */
/**
 * @typedef {object} Completion An answer.
 * @property {string} text
 * @property {"stop" | "length" | "cancelled"} finishReason `stop` at the end of the answer or a stop string, `length` at
 *   `maxTokens` or the end of the context, `cancelled` where the caller ended it.
 * @property {Usage} usage
 * @property {TokenLogprob[] | null} logprobs Of each token, where they were asked for.
 * @property {number | bigint} seed With it the same options give the same answer again.
 * @property {number[]} tokens The new ones.
 */
/**
 * @typedef {object} Prompting What is asked for.
 * @property {string | readonly Message[]} prompt A text to go on from, or the messages of a conversation.
 * @property {readonly Record<string, any>[] | null} [tools] Functions that the template tells the model of.
 * @property {Record<string, any>} [templateValues] More that the template reads, such as `{enable_thinking: false}`.
 * @property {Record<string, any>} options Those of `GenerationOptions`.
 */
/**
 * @typedef {object} Piece What was generated since the piece before.
 * @property {string} text
 * @property {number[]} tokens
 * @property {TokenLogprob[]} logprobs Of these tokens, where they were asked for.
 * @property {number} threads How many computed it.
 * @property {{promptTokens: number, cachedTokens: number, seed: number | bigint}} [begun] In the first piece, which has no text.
 */
/** @typedef {Completion["finishReason"]} FinishReason */
/** @typedef {{render: (messages: readonly Message[], options?: import("./template.js").RenderOptions) => string}} Template */

/** A decoder with its tokenizer and its template. */
export class TextModel {
  #sequence;
  #definition;
  #vocabulary;
  #openTemplate;
  /** @type {Promise<Template> | undefined} */
  #template;
  #label;

  /**
   * @param {import("./sequence.js").TokenDecoder} decoder
   * @param {import("../tasks/text/tokenizer.js").Tokenizer} tokenizer
   * @param {import("./definition.js").GenerateDefinition} definition
   * @param {(() => Promise<Template>) | null} openTemplate Called when a conversation is first written; null where the model takes prompts alone.
   * @param {string} label Its name.
   */
  constructor(decoder, tokenizer, definition, openTemplate, label) {
    this.decoder = decoder;
    this.tokenizer = tokenizer;
    this.#sequence = new Sequence(decoder, definition.eos);
    this.#definition = definition;
    this.#vocabulary = new Vocabulary(tokenizer, decoder.config.vocab_size);
    this.#openTemplate = openTemplate;
    this.#label = label;
  }

  /** @param {string} text @returns {number[]} The tokens of a prompt, with those that the model wants at its beginning. */
  tokenize(text) {
    const { ids } = this.tokenizer.encode(text, null, { truncation: null, padding: null });
    const { bos, addBos } = this.#definition;
    return addBos && bos !== null && ids[0] !== bos ? [bos, ...ids] : ids;
  }

  /**
   * @param {readonly number[]} tokens
   * @returns {string}
   * @throws {EdgeInferError} `input_error`: the model does not have one of them.
   */
  detokenize(tokens) {
    const { size } = this.#vocabulary;
    const unknown = tokens.find((token) => !(token >= 0 && token < size));
    if (unknown !== undefined) {
      throw new EdgeInferError(`the model has no token ${unknown}`, "input_error", { hint: `its tokens are 0 to ${size - 1}` });
    }
    return this.tokenizer.decode(tokens);
  }

  /**
   * Write the prompt of a conversation by the model's chat template.
   *
   * @param {readonly Message[]} messages
   * @param {readonly Record<string, any>[] | null} [tools]
   * @param {Record<string, any>} [values]
   * @returns {Promise<string>}
   * @throws {EdgeInferError} `unsupported`: the model has no chat template. `input_error`: the messages are not what it takes.
   */
  async render(messages, tools = null, values = {}) {
    if (!this.#openTemplate) {
      throw new EdgeInferError(`\`${this.#label}\` has no chat template, so that it takes no messages`, "unsupported", { hint: 'generator.stream("Hello")' });
    }
    if (!Array.isArray(messages)) {
      throw new EdgeInferError("`messages` is no list", "input_error", { hint: 'generator.chat([{ role: "user", content: "Hello" }])' });
    }
    const checked = messages.map(messageOf);
    this.#template ??= this.#openTemplate();
    const template = await this.#template.catch((error) => {
      this.#template = undefined;
      throw error;
    });
    return template.render(checked, { tools, values });
  }

  /**
   * Generate an answer piece by piece: an iterator, so that it can be given up between tokens.
   *
   * @param {Prompting} prompting
   * @returns {AsyncGenerator<Piece, FinishReason>} One piece for each token and each chunk of the prompt.
   * @throws {EdgeInferError} `input_error`: an option is unknown or out of range, or the prompt is longer than the context.
   *   `execution_error`: the model's numbers are not numbers.
   */
  async *generate({ prompt, tools = null, templateValues, options: given }) {
    const options = optionsOf(given, this.#definition.defaults);
    const isChat = typeof prompt !== "string";
    if (!isChat && tools) throw new EdgeInferError("`tools` are for messages, which a template renders", "input_error", { hint: "generator.chat(messages)" });
    const ids = isChat
      ? // The template writes the tokens at the beginning itself, as it does for transformers.
        this.tokenizer.encode(await this.render(prompt, tools, templateValues), null, { addSpecialTokens: false, truncation: null, padding: null }).ids
      : this.tokenize(prompt);
    const format = options.responseFormat;
    const grammar = format && (await import("./grammar.js")).grammarOf(format, this.#vocabulary, this.#definition.eos);
    const answer = new Answer(this.#vocabulary, options.stop, isChat);
    const job = this.#sequence.begin(ids, options, grammar);
    yield { text: "", tokens: [], logprobs: [], threads: this.decoder.threads, begun: { promptTokens: ids.length, cachedTokens: job.cachedTokens, seed: options.seed ?? 0 } };
    for (;;) {
      const { threads } = this.decoder;
      const choice = job.step();
      let text = "";
      let isStopped = false;
      if (choice) ({ text, isStopped } = answer.add(choice.token));
      if (isStopped) job.finishReason = "stop";
      else if (job.finishReason !== null) {
        const rest = answer.end();
        if (rest.isStopped) job.finishReason = "stop";
        text += rest.text;
      }
      const logprob = choice?.logprob ?? null;
      const logprobs = choice && logprob !== null ? [this.#logprob(choice, logprob)] : [];
      yield { text, tokens: choice ? [choice.token] : [], logprobs, threads };
      if (job.finishReason !== null) return job.finishReason;
    }
  }

  /** Give the decoder's memory back. */
  close() {
    this.decoder.close();
  }

  /**
   * @param {import("./sampler.js").Choice} choice
   * @param {number} logprob
   * @returns {TokenLogprob}
   */
  #logprob({ token, top }, logprob) {
    return { token, text: this.#textOf(token), logprob, top: top.map(([one, value]) => ({ token: one, text: this.#textOf(one), logprob: value })) };
  }

  /** @param {number} token @returns {string} Of one token, marks such as `</s>` included; bytes that are no character are U+FFFD. */
  #textOf(token) {
    const data = this.#vocabulary.bytesOf(token);
    return data.length > 0 ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(data) : (this.tokenizer.idToToken(token) ?? "");
  }
}

/** @param {any} message @returns {Message} It, with the parts of its content joined. */
function messageOf(message) {
  if (message === null || typeof message !== "object" || typeof message.role !== "string") {
    throw new EdgeInferError(`${shown(message)} is no message`, "input_error", { hint: '{ role: "user", content: "Hello" }' });
  }
  const { content } = message;
  if (content === undefined || content === null || typeof content === "string") return message;
  if (!Array.isArray(content)) throw new EdgeInferError(`the content of a message is ${shown(content)}, expected a text`, "input_error");
  const texts = content.map((part) => {
    if (part?.type === "text" && typeof part.text === "string") return part.text;
    throw new EdgeInferError(`a message has the part ${shown(part)}, only texts are read`, "input_error", { hint: '{ type: "text", text: "..." }' });
  });
  return { ...message, content: texts.join("") };
}

/** @param {unknown} value */
function shown(value) {
  return (JSON.stringify(value) ?? String(value)).slice(0, 80);
}
