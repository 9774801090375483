/** A model that generates text, as a page or a script uses it: made by `generate` of `index.js`. */

import { EdgeInferError } from "../errors.js";
import { WorkerClient } from "./client.js";
import { hasWorkers } from "./start-worker.js";

/** @typedef {import("../generation/open.js").Facts} Facts */
/** @typedef {import("../generation/options.js").GivenOptions} GivenOptions */
/** @typedef {import("../generation/text-model.js").Message} Message */
/** @typedef {import("../generation/text-model.js").Completion} Completion */
/** @typedef {import("../generation/text-model.js").Piece} Piece */
/** @typedef {import("../generation/text-model.js").Usage} Usage */
/** @typedef {Pick<WorkerClient, "request" | "close">} Client What answers: a worker, or this thread. */
/** @typedef {Facts & Usage & {thread: "worker" | "own", threads: number}} GenerationReport What runs, how many threads computed the
 *   last token, and the tokens of all prompts and answers so far. */
/**
 * @typedef {object} ChatOptions
 * @property {readonly Record<string, any>[] | null} [tools] Functions that the template tells the model of; their calls come as
 *   text. `new Number(1)` is the float 1.0; `parseJson` of `edge-infer/json-numbers` makes it.
 * @property {Record<string, any>} [templateValues] More that the template reads, such as `{ enable_thinking: false }`.
 * @property {AbortSignal} [signal] Gives up within one token.
 */
/** @typedef {GivenOptions & ChatOptions} StreamOptions */

/**
 * @typedef {object} GeneratorOptions
 * @property {string} [variant] The weights to use, such as `decoder/int8`; the smallest unless given.
 * @property {number} [context] Tokens of prompt and answer together; the model's own unless given, at most 4096.
 * @property {number} [threads] Threads that compute; as many as are faster just now unless given, where the page is cross-origin
 *   isolated, up to 4. The number changes no token.
 * @property {URL | string} [root] The URL under which `src/` and `vendor/` lie; that of this module unless given.
 * @property {import("../fetch/download.js").OnProgress} [onProgress] Told how far the download has come.
 * @property {AbortSignal} [signal] Gives up the load; what has arrived until then is kept.
 * @property {boolean} [keep] Whether the model is kept in the page's storage for the next visit; it is unless false.
 * @property {string} [apiKey] What the bundle's server asks for, where it has tenants.
 */

/**
 * @param {string} url
 * @param {GeneratorOptions & {root: string}} options
 * @returns {Promise<Generator>}
 * @throws {EdgeInferError} The bundle is missing or wrong, or generates no text.
 */
export async function openGenerator(url, { variant, context, threads, root, onProgress, signal, keep = true, apiKey }) {
  const isAlone = !hasWorkers();
  /** @type {Client} */
  const client = isAlone
    ? new (await import("../generation/requests.js")).GenerationRequests()
    : new WorkerClient("edge-infer generation", { script: "generation-worker.js", root });
  try {
    const asked = { url, root, variant, context, threads, apiKey, keep };
    const facts = await client.request({ kind: "open-generation", asked }, { onProgress, signal });
    return new Generator(client, facts, isAlone ? "own" : "worker");
  } catch (error) {
    client.close();
    throw error;
  }
}

/** A model that generates text. Its requests are answered one after the other. */
export class Generator {
  /** @type {Client | undefined} */
  #client;
  #facts;
  #thread;
  /** @type {Usage} */
  #totals = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 };
  #threads = 1;

  /** @param {Client} client @param {Facts} facts @param {"worker" | "own"} thread */
  constructor(client, facts, thread) {
    this.#client = client;
    this.#facts = facts;
    this.#thread = thread;
  }

  /**
   * Generate text piece by piece. It begins with the first piece that is asked for, and ends where the loop is left.
   *
   *     for await (const piece of generator.stream("Hello", { seed: 1 })) console.log(piece);
   *
   * @param {string | readonly Message[]} prompt A text to go on from, or the messages of a conversation, each with `role` and `content`.
   * @param {StreamOptions} [options]
   * @returns {TextStream}
   */
  stream(prompt, { signal, tools, templateValues, ...options } = {}) {
    const { logprobs } = options;
    const client = this.#opened();
    return new TextStream(client, { kind: "generate", prompt, tools, templateValues, options }, signal, logprobs !== undefined && logprobs !== null && logprobs !== false, (usage, threads) => {
      this.#threads = threads;
      for (const name of /** @type {(keyof Usage)[]} */ (Object.keys(usage))) this.#totals[name] += usage[name];
    });
  }

  /**
   * Go on from a text.
   *
   * @param {string} prompt
   * @param {StreamOptions} [options]
   * @returns {Promise<Completion>}
   * @throws {EdgeInferError} `input_error`: an option is unknown or out of range, or the prompt is longer than the context.
   */
  async complete(prompt, options) {
    if (typeof prompt !== "string") throw new EdgeInferError("`prompt` is not a text", "input_error", { hint: "generator.chat(messages)" });
    return this.stream(prompt, options).result();
  }

  /**
   * Answer the last message of a conversation.
   *
   * @param {readonly Message[]} messages
   * @param {StreamOptions} [options]
   * @returns {Promise<Completion>}
   * @throws {EdgeInferError} As `complete` does; `unsupported`: the model has no chat template.
   */
  async chat(messages, options) {
    if (typeof messages === "string") {
      throw new EdgeInferError("`messages` is a text", "input_error", { hint: 'generator.chat([{ role: "user", content: "Hello" }])' });
    }
    return this.stream(messages, options).result();
  }

  /** @param {string} text @returns {Promise<number[]>} The tokens of a prompt, with those that the model wants at its beginning. */
  async tokenize(text) {
    return this.#opened().request({ kind: "tokenize", text });
  }

  /** @param {readonly number[]} tokens @returns {Promise<string>} Their text. */
  async detokenize(tokens) {
    return this.#opened().request({ kind: "detokenize", tokens });
  }

  /**
   * Write the prompt of a conversation by the model's chat template.
   *
   * @param {readonly Message[]} messages
   * @param {{tools?: readonly Record<string, any>[] | null, templateValues?: Record<string, any>}} [options]
   * @returns {Promise<string>}
   */
  async render(messages, { tools, templateValues } = {}) {
    return this.#opened().request({ kind: "render", messages, tools, values: templateValues });
  }

  /** @returns {GenerationReport} What runs, and what was done so far. */
  report() {
    return { ...this.#facts, ...this.#totals, thread: this.#thread, threads: this.#threads };
  }

  /** Give the memory back; what is generated ends. A second call does nothing. */
  async dispose() {
    this.#client?.close();
    this.#client = undefined;
  }

  /** For `await using generator = await generate(...)`, where the browser knows it. */
  async [Symbol.asyncDispose]() {
    await this.dispose();
  }

  #opened() {
    if (this.#client) return this.#client;
    throw new EdgeInferError("The generator is closed", "input_error", { hint: "open it again: generate(url)" });
  }
}

/** Pieces of one answer as they are generated: an async iterator, to be read once. */
export class TextStream {
  #pieces;
  /** @type {Completion} */
  #completion;
  #left = new AbortController();
  #threads = 1;

  /**
   * @param {Client} client
   * @param {import("../generation/requests.js").GenerateRequest} request
   * @param {AbortSignal | undefined} signal
   * @param {boolean} hasLogprobs
   * @param {(usage: Usage, threads: number) => void} onEnd Told what it took.
   */
  constructor(client, request, signal, hasLogprobs, onEnd) {
    this.#completion = {
      text: "",
      finishReason: "cancelled",
      usage: { promptTokens: 0, completionTokens: 0, cachedTokens: 0 },
      logprobs: hasLogprobs ? [] : null,
      seed: 0,
      tokens: [],
    };
    this.#pieces = this.#read(client, request, signal, onEnd);
  }

  /** @returns {Completion} The answer as far as it was read; its `finishReason` is `cancelled` before its end. */
  get completion() {
    const { usage, logprobs, tokens } = this.#completion;
    return { ...this.#completion, usage: { ...usage }, logprobs: logprobs && [...logprobs], tokens: [...tokens] };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<string, undefined>>} The next piece of text, which is never empty. */
  next() {
    return this.#pieces.next();
  }

  /** End the generation within one token. @returns {Promise<IteratorResult<string, undefined>>} */
  return() {
    this.#left.abort(new EdgeInferError("The stream was left", "input_error"));
    return this.#pieces.return(undefined);
  }

  /** @returns {Promise<Completion>} Generate to the end. */
  async result() {
    while (!(await this.next()).done);
    return this.completion;
  }

  /**
   * @param {Client} client
   * @param {import("../generation/requests.js").GenerateRequest} request
   * @param {AbortSignal | undefined} signal
   * @param {(usage: Usage, threads: number) => void} onEnd
   * @returns {AsyncGenerator<string, undefined>}
   */
  async *#read(client, request, signal, onEnd) {
    const left = this.#left;
    /** @type {Piece[]} */
    const arrived = [];
    let wake = () => {};
    const onPiece = (/** @type {Piece} */ piece) => {
      arrived.push(piece);
      wake();
    };
    /** @type {{reason?: Completion["finishReason"], error?: unknown} | undefined} */
    let end;
    const given = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    client.request(request, { onPiece, signal: given }).then(
      (reason) => (end = { reason }),
      (error) => (end = { error }),
    ).finally(() => wake());
    try {
      for (;;) {
        for (let piece = arrived.shift(); piece; piece = arrived.shift()) {
          this.#take(piece);
          if (piece.text) yield piece.text;
        }
        if (end?.reason) {
          this.#completion.finishReason = end.reason;
          return;
        }
        if (left.signal.aborted) return;
        if (end) throw end.error;
        await new Promise((resolve) => (wake = () => resolve(undefined)));
      }
    } finally {
      left.abort();
      onEnd(this.#completion.usage, this.#threads);
    }
  }

  /** @param {Piece} piece */
  #take({ text, tokens, logprobs, begun, threads }) {
    this.#threads = threads;
    const made = this.#completion;
    if (begun) {
      made.seed = begun.seed;
      made.usage.promptTokens = begun.promptTokens;
      made.usage.cachedTokens = begun.cachedTokens;
    }
    made.text += text;
    made.tokens.push(...tokens);
    made.usage.completionTokens += tokens.length;
    made.logprobs?.push(...logprobs);
  }
}
