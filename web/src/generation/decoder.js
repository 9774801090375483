/**
 * A decoder that runs in the page: tokens in, logits out, with the bits that Python's decoder has natively.
 *
 * `generation.wasm` computes; it is made of `edge_infer/kernels/source/generation` and imports nothing. Its memory holds
 * the weight file, the cache, what the kernels use, and at its end the batch and its logits. `generation-threads.wasm` is
 * the same for threads, which share its memory.
 */

import { EdgeInferError } from "../errors.js";
import { align, kernelModule, start } from "./kernels.js";
import { Team } from "./team.js";
import { Filling, damaged, piecesOf, readHead, readHeader } from "./weight-file.js";

/** @typedef {import("./kernels.js").Kernels} Kernels */
/** @typedef {import("./kernels.js").KernelMemory} KernelMemory */
/** @typedef {import("./weight-file.js").DecoderConfig} DecoderConfig */
/** @typedef {import("./weight-file.js").Layout} Layout */
/** @typedef {import("./weight-file.js").WeightSource} WeightSource */

/**
 * @typedef {object} DecoderOptions
 * @property {number} [slots] Sequences that the cache holds; 1 unless given.
 * @property {number} [context] Positions kept for each; the model's own unless given.
 * @property {WebAssembly.Module} [module] The compiled kernels, of `kernelModule`.
 * @property {number} [threads] The most threads; more than 1 only with the module for threads, and with `startWorker`.
 * @property {boolean} [areFixed] Whether all of them always compute; else as many as are faster.
 * @property {import("./team.js").StartWorker} [startWorker]
 */

/** The places of the vocabulary's size and of the context in a program. */
const [VOCABULARY_WORD, CONTEXT_WORD] = [3, 10];
export { kernelModule };

/** A decoder with its weights and its cache; made by `open` or `of`. */
export class Decoder {
  /**
   * Open a weight file. A stream goes straight into the memory of the kernels: there is no other copy of the weights.
   *
   * @param {WeightSource} source The file, or where it comes from.
   * @param {DecoderOptions} [options]
   * @returns {Promise<Decoder>}
   * @throws {EdgeInferError} `bundle_error`: it is not a weight file, or is damaged. `input_error`: `slots` or `context` is out
   *   of range. `out_of_memory`: the page has no memory for it. `fetch_error`: the source does not answer.
   */
  static async open(source, options = {}) {
    const { kernels, memory } = start(options.module ?? (await kernelModule()));
    const pieces = piecesOf(source);
    const head = await readHead(pieces);
    const layout = readHeader(head.bytes);
    const file = memory.reserve(layout.size);
    const fill = new Filling(memory, file, layout.size);
    fill.add(head.bytes);
    for await (const piece of head.rest) fill.add(piece);
    fill.end();
    return new Decoder(kernels, memory, file, layout, options);
  }

  /**
   * Take memory for a weight file of a known size, to be filled by who reads it.
   *
   * @param {number} size
   * @param {WebAssembly.Module} [module] The compiled kernels, fetched unless given.
   * @returns {Promise<WeightRoom>}
   * @throws {EdgeInferError} `out_of_memory`: the page has no memory for it.
   */
  static async room(size, module) {
    return new WeightRoom(size, module ?? (await kernelModule()));
  }

  /**
   * The same as `open` at once, of a file that is in memory.
   *
   * @param {Uint8Array} bytes
   * @param {DecoderOptions & {module: WebAssembly.Module}} options
   * @returns {Decoder}
   * @throws {EdgeInferError} As `open` does.
   */
  static of(bytes, options) {
    const layout = readHeader(bytes);
    if (bytes.length !== layout.size) throw damaged(`${bytes.length} of ${layout.size} bytes`);
    const room = new WeightRoom(layout.size, options.module);
    room.put(0, bytes);
    return room.open(options);
  }

  /**
   * @param {Kernels} kernels
   * @param {KernelMemory} memory
   * @param {number} file Where the weight file lies in it.
   * @param {Layout} layout
   * @param {DecoderOptions} options
   */
  constructor(kernels, memory, file, layout, { slots = 1, context, module, threads = 1, areFixed = false, startWorker }) {
    /** @type {DecoderConfig} */
    this.config = layout.config;
    /** @type {number} Sequences that the cache holds. */
    this.slots = slots;
    /** @type {number} Positions kept for each of them. */
    this.context = context ?? this.config.context;
    /** @type {KernelMemory | undefined} */
    this.memory = memory;
    this.kernels = kernels;
    this.file = file;
    this.program = file + layout.program.start;
    const words = (layout.program.end - layout.program.start) / 4;
    const [vocabulary, positions] = [VOCABULARY_WORD, CONTEXT_WORD].map((word) => new Int32Array(memory.buffer, this.program, words)[word]);
    const isOther = vocabulary !== this.config.vocab_size || positions !== this.config.context;
    const wrong = isOther ? 1 + VOCABULARY_WORD : kernels.decoder_check(this.program, words, layout.size);
    if (wrong) {
      throw new EdgeInferError(`The weight file is damaged, or of another version: word ${wrong - 1} of its program does not fit`, "bundle_error", {
        hint: "convert the model again",
      });
    }
    checkWhole("slots", slots, 1, 65536);
    checkWhole("context", this.context, 1, this.config.context);
    const [cache, scratch] = [kernels.decoder_cache_bytes(this.program, slots, this.context), kernels.decoder_scratch_bytes(this.program, this.context)];
    const hasTeam = threads > 1 && startWorker !== undefined && memory.isShared;
    const [shared, stacks] = hasTeam ? [kernels.decoder_team_bytes(this.program, this.context, threads), Team.stackBytes(threads)] : [0, 0];
    memory.need(memory.end + align(cache) + align(scratch) + align(shared) + stacks); // grown once: a browser may copy what is there
    this.cache = memory.reserve(cache);
    this.scratch = memory.reserve(scratch);
    /** @type {Team | undefined} */
    this.team = undefined;
    if (hasTeam && module) {
      this.team = new Team(kernels, memory.reserve(shared), threads, areFixed);
      this.team.start(startWorker, module, memory.memory, memory.reserve(stacks));
    }
    /** Where a batch, its wanted rows, the best tokens and the logits lie; set anew by every run. */
    this.places = { rows: memory.end, wanted: memory.end, logits: memory.end };
    this.wanted = 0;
  }

  /** @returns {number} How many threads compute the next token; where the number is not fixed, it changes with the load. */
  get threads() {
    return this.team?.threads ?? 1;
  }

  /**
   * Compute one flat batch of rows: row i is `tokens[i]` at `positions[i]` of `slots[i]`. The cache is written at those
   * positions, and each row sees the positions of its slot up to its own. A row's result is the same alone and in company.
   *
   * @param {ArrayLike<number>} tokens Ids from 0 to the vocabulary's size - 1.
   * @param {ArrayLike<number>} slots
   * @param {ArrayLike<number>} positions Those of one slot stand together, and rise.
   * @param {ArrayLike<number>} wanted Rising indices of the rows whose logits are computed.
   * @throws {EdgeInferError} `input_error`: a value is out of range, or the lists do not fit together.
   */
  run(tokens, slots, positions, wanted) {
    const count = tokens.length;
    if (slots.length !== count || positions.length !== count) {
      throw new EdgeInferError(`The batch has ${count} tokens, ${slots.length} slots and ${positions.length} positions`, "input_error");
    }
    const rows = this.prepare(count, wanted.length);
    [tokens, slots, positions, wanted].forEach((values, i) => rows.set(wholes(values, ["tokens", "slots", "positions", "wanted"][i]), i * count));
    const fault = this.cross(count, wanted.length);
    if (fault) throw new EdgeInferError(fault, "input_error");
  }

  /**
   * Make room for a batch.
   *
   * @param {number} count Its rows.
   * @param {number} wanted How many of them are wanted.
   * @returns {Int32Array<ArrayBuffer>} To be filled with tokens, slots, positions and then the wanted rows, before `cross`.
   */
  prepare(count, wanted) {
    const memory = this.open();
    const { vocab_size: vocabulary } = this.config;
    const rows = memory.end;
    const best = rows + align(4 * (3 * count + wanted));
    const logits = best + align(8 * vocabulary);
    memory.need(logits + 4 * vocabulary * wanted);
    this.places = { rows, wanted: rows + 12 * count, logits };
    this.wanted = 0;
    return new Int32Array(memory.buffer, rows, 3 * count + wanted);
  }

  /**
   * Compute the batch that stands where `prepare` said.
   *
   * @param {number} count
   * @param {number} wanted
   * @returns {string} What is wrong with the batch; empty where nothing is.
   */
  cross(count, wanted) {
    const { kernels, program, slots, context, places } = this;
    const memory = this.open();
    const wrong = kernels.decoder_check_rows(program, slots, context, places.rows, count, places.wanted, wanted);
    if (wrong) return this.fault(wrong, new Int32Array(memory.buffer, places.rows, 3 * count + wanted), count);
    const values = [program, this.file, this.cache, this.scratch, slots, context, places.rows, count, places.wanted, wanted, places.logits];
    if (this.team && count) this.team.run(count, values);
    else kernels.decoder_run(...values);
    this.wanted = wanted;
    return "";
  }

  /**
   * @param {number} index Of the wanted rows of the last run.
   * @returns {Float32Array<ArrayBuffer>} The row's logits: a view, writable, valid until the next run.
   * @throws {EdgeInferError} `input_error`: the last run computed no such row.
   */
  logits(index) {
    return new Float32Array(this.open().buffer, this.place(index), this.config.vocab_size);
  }

  /**
   * The best tokens of a wanted row, by (-logit, id). A NaN stands before every number, so that the first entry tells
   * whether there is one.
   *
   * @param {number} index Of the wanted rows of the last run.
   * @param {number} count How many; no more than the vocabulary has.
   * @returns {[number, number][]} Ids and logits.
   * @throws {EdgeInferError} `input_error`: the last run computed no such row, or `count` is less than 1.
   */
  top(index, count) {
    const { ids, values } = this.best(index, count);
    return Array.from(ids, (id, i) => [id, values[i]]);
  }

  /**
   * The same as two views, valid until the next call.
   *
   * @param {number} index
   * @param {number} count
   * @returns {{ids: Int32Array<ArrayBuffer>, values: Float32Array<ArrayBuffer>}}
   */
  best(index, count) {
    const { vocab_size: vocabulary } = this.config;
    const memory = this.open();
    const place = this.place(index);
    if (!(count >= 1)) throw new EdgeInferError(`count is ${count}, expected 1 or more`, "input_error");
    const taken = Math.min(Math.floor(count), vocabulary);
    const ids = this.places.logits - align(8 * vocabulary);
    this.kernels.decoder_top(place, vocabulary, taken, ids, ids + 4 * vocabulary);
    return { ids: new Int32Array(memory.buffer, ids, taken), values: new Float32Array(memory.buffer, ids + 4 * vocabulary, taken) };
  }

  /**
   * Copy what the cache holds of one slot's first positions into another slot.
   *
   * @param {number} from
   * @param {number} to
   * @param {number} length
   * @throws {EdgeInferError} `input_error`: a slot or the length is out of range.
   */
  copy(from, to, length) {
    this.open();
    for (const slot of [from, to]) checkWhole("slot", slot, 0, this.slots - 1);
    checkWhole("length", length, 0, this.context);
    if (from !== to) this.kernels.decoder_copy(this.program, this.cache, this.slots, this.context, from, to, length);
  }

  /** Give the memory back. A second call does nothing. */
  close() {
    this.team?.close();
    this.team = undefined;
    this.memory = undefined;
    this.kernels = {};
  }

  /** @returns {KernelMemory} */
  open() {
    if (!this.memory) throw new EdgeInferError("The decoder is closed", "input_error", { hint: "open it again" });
    return this.memory;
  }

  /** @param {number} index */
  place(index) {
    if (!(Number.isInteger(index) && index >= 0 && index < this.wanted)) {
      throw new EdgeInferError(`Logits ${index} were not computed; the last run computed ${this.wanted}`, "input_error");
    }
    return this.places.logits + 4 * this.config.vocab_size * index;
  }

  /**
   * @param {number} wrong What `decoder_check_rows` gave.
   * @param {Int32Array} rows
   * @param {number} count
   */
  fault(wrong, rows, count) {
    if (wrong < 0) return `wanted[${-1 - wrong}] is ${rows[3 * count - 1 - wrong]}, expected a rising index of ${count} rows`;
    const [row, kind] = [wrong >> 2, wrong & 3];
    const value = rows[(kind - 1) * count + row];
    if (kind === 1) return `tokens[${row}] is ${value}, expected 0 to ${this.config.vocab_size - 1}`;
    if (kind === 2) return `slots[${row}] is ${value}, expected 0 to ${this.slots - 1}`;
    return `positions[${row}] is ${value}, expected 0 to ${this.context - 1}, rising within a slot`;
  }
}

/** The kernels' memory with room for a weight file at its start. */
export class WeightRoom {
  /**
   * @param {number} size Of the file.
   * @param {WebAssembly.Module} module
   */
  constructor(size, module) {
    const { kernels, memory } = start(module);
    this.module = module;
    this.kernels = kernels;
    this.memory = memory;
    this.file = this.memory.reserve(size);
    /** To be filled; of no use once the decoder is open. */
    this.bytes = new Uint8Array(this.memory.buffer, this.file, size);
  }

  /**
   * Put some of the file's bytes in their place.
   *
   * @param {number} at
   * @param {Uint8Array} bytes
   */
  put(at, bytes) {
    this.bytes.set(bytes, at);
  }

  /**
   * @param {DecoderOptions} [options]
   * @returns {Decoder} The decoder of the weights that are there now.
   * @throws {EdgeInferError} As `Decoder.open` does.
   */
  open(options = {}) {
    const layout = readHeader(this.bytes);
    if (layout.size !== this.bytes.length) throw damaged(`${this.bytes.length} of ${layout.size} bytes`);
    return new Decoder(this.kernels, this.memory, this.file, layout, { ...options, module: this.module });
  }
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
function checkWhole(name, value, low, high) {
  if (!Number.isInteger(value) || value < low || value > high) throw new EdgeInferError(`${name} is ${value}, expected ${low} to ${high}`, "input_error");
}

/**
 * @param {ArrayLike<number>} values
 * @param {string} name
 */
function wholes(values, name) {
  for (let i = 0; i < values.length; i++) {
    if (values[i] !== (values[i] | 0)) throw new EdgeInferError(`${name}[${i}] is ${values[i]}, expected a whole number of 32 bits`, "input_error");
  }
  return values;
}
