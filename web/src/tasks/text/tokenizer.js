/** Text to the numbers of tokens and back, as a `tokenizer.json` says. The same ids and texts as `edge_infer.Tokenizer`. */

import { EdgeInferError } from "../../errors.js";
import { aligned, alignedNormalizer } from "./alignment.js";
import { Matcher, readAddedTokens } from "./added-tokens.js";
import { toCharacters } from "./byte-alphabet.js";
import { decoder } from "./decoders.js";
import { readDefinition } from "./definition.js";
import { PostProcessor, pad, readPadding, readTruncation, truncate } from "./encoding.js";
import { model } from "./models.js";
import { normalizer } from "./normalizers.js";
import { beforeBytes, preTokenizer } from "./pre-tokenizers.js";

/** @typedef {import("./encoding.js").Encoding} Encoding */
/** @typedef {import("./pre-tokenizers.js").Piece} Piece */
/** @typedef {import("./encoding.js").Padding} Padding */
/** @typedef {import("./encoding.js").Truncation} Truncation */
/**
 * @typedef {object} EncodeOptions
 * @property {boolean} [addSpecialTokens] Whether to put the tokens of the template around it; true if left out.
 * @property {Truncation | null | "file"} [truncation] Null not to cut; as the file says if left out.
 * @property {Padding | null | "file"} [padding] Null not to fill up; as the file says if left out.
 * @property {boolean} [offsets] Whether to tell where in its text each token is; it takes longer, since words are not remembered then.
 */

const MAX_TEXT = 2 ** 24;
const [LONG_WORD, MAX_REMEMBERED] = [64, 65_536];

/** Encodes text as a `tokenizer.json` says. */
export class Tokenizer {
  #model;
  #normalize;
  /** The same with the places of characters, made when it is first needed. @type {() => import("./alignment.js").AlignedNormalizer | null} */
  #align;
  #preTokenize;
  #wordsOfBytes;
  #postProcess;
  #decode;
  #given;
  #normalized;
  #special;
  #added;
  /** @type {Map<number, string>} */
  #tokens = new Map();
  /** @type {Map<string, number[]>} */
  #remembered = new Map();

  /**
   * @param {Uint8Array | string} data The bytes or the text of the file.
   * @throws {EdgeInferError} `bundle_error`: it is damaged. `unsupported_model`: it has a part that is not built here.
   */
  constructor(data) {
    const file = readDefinition(data);
    this.#model = model(file.part("model"));
    const rewriting = file.optional("normalizer");
    this.#normalize = normalizer(rewriting);
    /** @type {import("./alignment.js").AlignedNormalizer | null | undefined} */
    let align;
    this.#align = () => (align === undefined ? (align = alignedNormalizer(rewriting)) : align);
    const parts = file.optional("pre_tokenizer");
    this.#preTokenize = preTokenizer(parts);
    this.#wordsOfBytes = beforeBytes(parts);
    this.#postProcess = new PostProcessor(file.optional("post_processor"), (number) => this.idToToken(number));
    this.#decode = decoder(file.optional("decoder"));
    /** What the file says about long texts; null for nothing. */
    this.truncation = readTruncation(file.optional("truncation"));
    /** What the file says about short texts. */
    this.padding = readPadding(file.optional("padding"));
    const added = readAddedTokens(file, this.#model.vocabulary);
    this.#given = new Matcher(added.filter((one) => !one.isNormalized), null);
    this.#normalized = new Matcher(added.filter((one) => one.isNormalized), this.#normalize);
    this.#special = new Set(added.filter((one) => one.isSpecial).map((one) => one.text));
    this.#added = new Map(added.map((one) => [one.text, one.number]));
    for (const [token, number] of this.#model.vocabulary) this.#tokens.set(number, token);
    for (const one of added) if (!one.isNormalized) this.#tokens.set(one.number, one.text);
    for (const [text, one] of this.#normalized.tokens) this.#tokens.set(one.number, text);
  }

  /** @returns {number} How many tokens there are, the added ones included. */
  get vocabSize() {
    return new Set([...this.#model.vocabulary.keys(), ...this.#added.keys()]).size;
  }

  /** @param {string} token @returns {number | null} */
  tokenToId(token) {
    return this.#added.get(token) ?? this.#model.vocabulary.get(token) ?? null;
  }

  /** @param {number} number @returns {string | null} */
  idToToken(number) {
    return this.#tokens.get(number) ?? null;
  }

  /**
   * @param {string} text At most 16,777,216 UTF-16 units.
   * @param {string | null} [pair] The second text.
   * @param {EncodeOptions} [options]
   * @returns {Encoding}
   * @throws {EdgeInferError} `input_error`: a text is too long, has half of a surrogate pair, or cannot be written.
   */
  encode(text, pair = null, { addSpecialTokens = true, truncation = "file", padding = "file", offsets = false } = {}) {
    const cut = truncation === "file" ? this.truncation : truncation;
    const fill = padding === "file" ? this.padding : padding;
    let texts = (pair === null ? [text] : [text, pair]).map((one) => (offsets ? this.#place(one) : { ids: this.#tokenize(one) }));
    if (cut) texts = truncate(texts, cut, addSpecialTokens ? this.#postProcess.added(pair !== null) : 0);
    const found = this.#postProcess.join(texts, addSpecialTokens);
    if (fill) pad([found], fill);
    return found;
  }

  /**
   * @param {(string | [string, string])[]} texts Texts and pairs of texts; `padding: {}` fills up to the longest.
   * @param {EncodeOptions} [options]
   * @returns {Encoding[]}
   */
  encodeBatch(texts, options = {}) {
    const found = texts.map((one) => {
      const [text, pair] = typeof one === "string" ? [one, null] : one;
      return this.encode(text, pair, { ...options, padding: null });
    });
    const fill = (options.padding ?? "file") === "file" && options.padding !== null ? this.padding : options.padding;
    if (fill) pad(found, /** @type {Padding} */ (fill));
    return found;
  }

  /**
   * @param {Iterable<number | bigint>} ids An id that nobody has is left out.
   * @param {{skipSpecialTokens?: boolean}} [options]
   * @returns {string}
   */
  decode(ids, { skipSpecialTokens = true } = {}) {
    /** @type {string[]} */
    const tokens = [];
    for (const number of ids) {
      const token = this.#tokens.get(Number(number));
      if (token !== undefined && !(skipSpecialTokens && this.#special.has(token))) tokens.push(token);
    }
    return this.#decode ? this.#decode(tokens).join("") : tokens.join(" ");
  }

  /** @param {{skipSpecialTokens?: boolean}} [options] @returns {DecodeStream} Decodes tokens that arrive one by one. */
  decodeStream(options = {}) {
    return new DecodeStream(this, options);
  }

  /** @param {string} text @returns {number[]} */
  #tokenize(text) {
    check(text);
    /** @type {number[]} */
    const ids = [];
    for (const [number, piece] of this.#given.split({ text, isFirst: true })) {
      if (number !== null) {
        ids.push(number);
        continue;
      }
      const written = this.#normalize ? { ...piece, text: this.#normalize(piece.text) } : piece;
      for (const [inside, part] of this.#normalized.split(written)) {
        if (inside !== null) ids.push(inside);
        else this.#addIds(part, ids);
      }
    }
    return ids;
  }

  /** @param {string} text @returns {import("./encoding.js").Tokens} The tokens with their offsets. */
  #place(text) {
    check(text);
    /** @type {Required<import("./encoding.js").Tokens>} */
    const found = { ids: [], offsets: [], spellings: new Map() };
    const added = (/** @type {number} */ number, /** @type {Piece} */ { text: spelling, spans = [] }) => {
      found.spellings.set(found.ids.length, spelling);
      found.ids.push(number);
      found.offsets.push([spans[0][0], spans[spans.length - 1][1]]);
    };
    for (const [number, piece] of this.#given.split({ ...aligned(text), isFirst: true })) {
      if (number !== null) {
        added(number, piece);
        continue;
      }
      const align = this.#align();
      const written = align ? { ...align({ text: piece.text, spans: piece.spans ?? [] }), isFirst: piece.isFirst } : piece;
      for (const [inside, part] of this.#normalized.split(written)) {
        if (inside !== null) added(inside, part);
        else this.#addPlaces(part, found.ids, found.offsets);
      }
    }
    return found;
  }

  /** @param {Piece} piece @param {number[]} ids @param {import("./patterns.js").Span[]} offsets */
  #addPlaces(piece, ids, offsets) {
    for (const { text, spans = [] } of this.#preTokenize?.([piece]) ?? [piece]) {
      const parts = text.length > LONG_WORD && this.#model.cut ? (text.match(this.#model.cut) ?? []) : [text];
      let at = 0;
      for (const part of parts) {
        for (const [number, start, end] of part ? this.#model.places(part) : []) {
          ids.push(number);
          offsets.push(start < end ? [spans[at + start][0], spans[at + end - 1][1]] : [0, 0]);
        }
        at += part.length;
      }
    }
  }

  /** @param {Piece} piece @param {number[]} ids */
  #addIds(piece, ids) {
    const words = (this.#wordsOfBytes ?? this.#preTokenize)?.([piece]) ?? [piece];
    for (const { text } of words) {
      if (this.#wordsOfBytes) this.#addWord(text, toCharacters, ids);
      else if (text.length > LONG_WORD && this.#model.cut) for (const part of text.match(this.#model.cut) ?? []) this.#addWord(part, null, ids);
      else if (text) this.#addWord(text, null, ids);
    }
  }

  /** @param {string} word @param {((word: string) => string) | null} write @param {number[]} ids */
  #addWord(word, write, ids) {
    let found = this.#remembered.get(word);
    if (!found) {
      found = this.#model.split(write ? write(word) : word);
      if (word.length <= LONG_WORD) {
        if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
        this.#remembered.set(word, found);
      }
    }
    for (const id of found) ids.push(id);
  }
}

/** Decodes tokens that arrive one by one: a text is given as soon as no later token can change it. */
export class DecodeStream {
  /** @type {number[]} */
  #ids = [];
  #given = 0;
  #prefix = "";
  #tokenizer;
  #options;

  /** @param {Tokenizer} tokenizer @param {{skipSpecialTokens?: boolean}} options */
  constructor(tokenizer, options) {
    this.#tokenizer = tokenizer;
    this.#options = options;
  }

  /**
   * @param {number | bigint} number
   * @returns {string | null} The text that is now certain; null while it may still change.
   * @throws {EdgeInferError} `input_error`: the text does not go on from the text before it.
   */
  step(number) {
    if (!this.#prefix && this.#ids.length) {
      const text = this.#tokenizer.decode(this.#ids, this.#options);
      if (!text.endsWith("\ufffd")) [this.#prefix, this.#given] = [text, this.#ids.length];
    }
    this.#ids.push(Number(number));
    const text = this.#tokenizer.decode(this.#ids, this.#options);
    const size = (/** @type {string} */ of) => new TextEncoder().encode(of).length;
    if (size(text) <= size(this.#prefix) || text.endsWith("\ufffd")) return null;
    if (!text.startsWith(this.#prefix)) {
      throw new EdgeInferError(`the text changes behind "${this.#prefix.slice(-20)}"`, "input_error", { hint: "decode all ids at once" });
    }
    const added = text.slice(this.#prefix.length);
    const count = this.#ids.length - this.#given;
    this.#ids = this.#ids.slice(this.#given);
    this.#prefix = this.#tokenizer.decode(this.#ids, this.#options);
    this.#given = count;
    return added;
  }
}

/** @param {unknown} text */
function check(text) {
  if (typeof text !== "string") throw new EdgeInferError(`a text must be a string, not ${typeof text}`, "input_error");
  if (text.length > MAX_TEXT) {
    throw new EdgeInferError(`a text of ${text.length} characters is longer than ${MAX_TEXT}`, "input_error", { hint: "cut it, for example by line" });
  }
  if (/\p{Surrogate}/u.test(text)) throw new EdgeInferError("the text has half of a surrogate pair", "input_error", { hint: "text.toWellFormed()" });
}
