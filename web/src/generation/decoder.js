/**
 * A decoder that runs in the page: tokens in, logits out, with the bits that Python's decoder has natively.
 *
 * `generation.wasm` computes; it is made of `edge_infer/kernels/source/generation` and imports nothing. Its memory holds
 * the weight file, the cache, what the kernels use, and at its end the batch and its logits.
 */

import { InferError } from "../errors.js";
import { downloadBytes } from "../fetch/download.js";

/** @typedef {ArrayBuffer | Uint8Array | Blob | Response | ReadableStream<Uint8Array>} WeightSource */
/** @typedef {{name: string, start: number, end: number}} Place */
/** @typedef {{[name: string]: (...values: number[]) => number}} Kernels */
/**
 * @typedef {object} DecoderConfig What `edge_infer.generation.config` describes, as the weight file says it.
 * @property {string} architecture
 * @property {number} vocab_size
 * @property {number} hidden_size
 * @property {number} layers
 * @property {number} context
 */
/** @typedef {{slots?: number, context?: number, module?: WebAssembly.Module}} DecoderOptions */

/** The version of a program's words, as in `edge_infer.kernels.decoder_words`. */
const VERSION = 1;
/** The places of the vocabulary's size and of the context in a program. */
const [VOCABULARY_WORD, CONTEXT_WORD] = [3, 10];
const PAGE = 65536;
const MAX_HEADER_BYTES = 16 * 2 ** 20;
const NOT_OURS = "write it with `edge-infer convert`";

/** A decoder with its weights and its cache; made by `open` or `of`. */
export class Decoder {
  /**
   * Open a weight file. A stream goes straight into the memory of the kernels: there is no other copy of the weights.
   *
   * @param {WeightSource} source The file, or where it comes from.
   * @param {DecoderOptions} [options] `slots`: sequences that the cache holds, 1 unless given. `context`: positions kept
   *   for each, the model's own unless given. `module`: the compiled `generation.wasm`, fetched unless given.
   * @returns {Promise<Decoder>}
   * @throws {InferError} `bundle_error`: it is not a weight file, or is damaged. `input_error`: `slots` or `context` is out
   *   of range. `out_of_memory`: the page has no memory for it. `fetch_error`: the source does not answer.
   */
  static async open(source, options = {}) {
    const kernels = start(options.module ?? (await kernelModule()));
    const pieces = piecesOf(source);
    const head = await readHead(pieces);
    const layout = readHeader(head.bytes);
    const memory = new KernelMemory(kernels);
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
   * @param {WebAssembly.Module} [module] The compiled `generation.wasm`, fetched unless given.
   * @returns {Promise<WeightRoom>}
   * @throws {InferError} `out_of_memory`: the page has no memory for it.
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
   * @throws {InferError} As `open` does.
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
  constructor(kernels, memory, file, layout, { slots = 1, context }) {
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
      throw new InferError(`The weight file is damaged, or of another version: word ${wrong - 1} of its program does not fit`, "bundle_error", {
        hint: "convert the model again",
      });
    }
    checkWhole("slots", slots, 1, 65536);
    checkWhole("context", this.context, 1, this.config.context);
    const [cache, scratch] = [kernels.decoder_cache_bytes(this.program, slots, this.context), kernels.decoder_scratch_bytes(this.program, this.context)];
    memory.need(memory.end + align(cache) + scratch); // grown once: a browser may copy what is there
    this.cache = memory.reserve(cache);
    this.scratch = memory.reserve(scratch);
    /** Where a batch, its wanted rows, the best tokens and the logits lie; set anew by every run. */
    this.places = { rows: memory.end, wanted: memory.end, logits: memory.end };
    this.wanted = 0;
  }

  /**
   * Compute one flat batch of rows: row i is `tokens[i]` at `positions[i]` of `slots[i]`. The cache is written at those
   * positions, and each row sees the positions of its slot up to its own. A row's result is the same alone and in company.
   *
   * @param {ArrayLike<number>} tokens Ids from 0 to the vocabulary's size - 1.
   * @param {ArrayLike<number>} slots
   * @param {ArrayLike<number>} positions Those of one slot stand together, and rise.
   * @param {ArrayLike<number>} wanted Rising indices of the rows whose logits are computed.
   * @throws {InferError} `input_error`: a value is out of range, or the lists do not fit together.
   */
  run(tokens, slots, positions, wanted) {
    const count = tokens.length;
    if (slots.length !== count || positions.length !== count) {
      throw new InferError(`The batch has ${count} tokens, ${slots.length} slots and ${positions.length} positions`, "input_error");
    }
    const rows = this.prepare(count, wanted.length);
    [tokens, slots, positions, wanted].forEach((values, i) => rows.set(wholes(values, ["tokens", "slots", "positions", "wanted"][i]), i * count));
    const fault = this.cross(count, wanted.length);
    if (fault) throw new InferError(fault, "input_error");
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
    kernels.decoder_run(
      ...[program, this.file, this.cache, this.scratch, slots, context],
      ...[places.rows, count, places.wanted, wanted, places.logits],
    );
    this.wanted = wanted;
    return "";
  }

  /**
   * @param {number} index Of the wanted rows of the last run.
   * @returns {Float32Array<ArrayBuffer>} The row's logits: a view, writable, valid until the next run.
   * @throws {InferError} `input_error`: the last run computed no such row.
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
   * @throws {InferError} `input_error`: the last run computed no such row, or `count` is less than 1.
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
    if (!(count >= 1)) throw new InferError(`count is ${count}, expected 1 or more`, "input_error");
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
   * @throws {InferError} `input_error`: a slot or the length is out of range.
   */
  copy(from, to, length) {
    this.open();
    for (const slot of [from, to]) checkWhole("slot", slot, 0, this.slots - 1);
    checkWhole("length", length, 0, this.context);
    if (from !== to) this.kernels.decoder_copy(this.program, this.cache, this.slots, this.context, from, to, length);
  }

  /** Give the memory back. A second call does nothing. */
  close() {
    this.memory = undefined;
    this.kernels = {};
  }

  /** @returns {KernelMemory} */
  open() {
    if (!this.memory) throw new InferError("The decoder is closed", "input_error", { hint: "open it again" });
    return this.memory;
  }

  /** @param {number} index */
  place(index) {
    if (!(Number.isInteger(index) && index >= 0 && index < this.wanted)) {
      throw new InferError(`Logits ${index} were not computed; the last run computed ${this.wanted}`, "input_error");
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
    this.kernels = start(module);
    this.memory = new KernelMemory(this.kernels);
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
   * @param {DecoderOptions} [options] `slots` and `context`.
   * @returns {Decoder} The decoder of the weights that are there now.
   * @throws {InferError} As `Decoder.open` does.
   */
  open(options = {}) {
    const layout = readHeader(this.bytes);
    if (layout.size !== this.bytes.length) throw damaged(`${this.bytes.length} of ${layout.size} bytes`);
    return new Decoder(this.kernels, this.memory, this.file, layout, options);
  }
}

/** The memory of the kernels, taken from its start on. */
class KernelMemory {
  /** @param {Kernels} kernels */
  constructor(kernels) {
    const { memory, __heap_base: base } = /** @type {{memory: WebAssembly.Memory, __heap_base: WebAssembly.Global}} */ (/** @type {unknown} */ (kernels));
    this.memory = memory;
    /** The first byte that nobody has taken. */
    this.end = align(base.value);
  }

  get buffer() {
    return /** @type {ArrayBuffer} */ (this.memory.buffer);
  }

  /**
   * @param {number} size
   * @returns {number} Where as many bytes begin, all zero.
   */
  reserve(size) {
    const place = this.end;
    this.need(place + size);
    this.end = align(place + size);
    return place;
  }

  /** @param {number} end Grow until a byte before this one is there. */
  need(end) {
    const pages = Math.ceil(align(end) / PAGE) - this.buffer.byteLength / PAGE;
    if (pages <= 0) return;
    try {
      if (align(end) > 2 ** 32 - PAGE) throw new RangeError("WebAssembly has 4 GiB");
      this.memory.grow(pages);
    } catch (cause) {
      throw new InferError(`The page has no memory for the decoder: it needs ${Math.ceil(end / 2 ** 20)} MiB`, "out_of_memory", {
        hint: "take a smaller context, fewer slots or a smaller variant",
        cause,
      });
    }
  }
}

/** Writes a file's bytes into memory as they come. */
class Filling {
  /**
   * @param {KernelMemory} memory
   * @param {number} place
   * @param {number} size
   */
  constructor(memory, place, size) {
    this.target = new Uint8Array(memory.buffer, place, size);
    this.reached = 0;
  }

  /** @param {Uint8Array} piece */
  add(piece) {
    if (this.reached + piece.length > this.target.length) throw damaged(`more than ${this.target.length} bytes`);
    this.target.set(piece, this.reached);
    this.reached += piece.length;
  }

  end() {
    if (this.reached < this.target.length) throw damaged(`${this.reached} of ${this.target.length} bytes`);
  }
}

/** @typedef {{config: DecoderConfig, program: Place, size: number}} Layout */

/**
 * Read a weight file's header.
 *
 * @param {Uint8Array} bytes The file, or at least its header.
 * @returns {Layout}
 */
export function readHeader(bytes) {
  try {
    const length = headerLength(bytes);
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length)));
    const config = JSON.parse(header.__metadata__.decoder);
    const base = 8 + length;
    let end = 0;
    for (const [name, entry] of Object.entries(header)) {
      if (name === "__metadata__") continue;
      const [from, to] = entry.data_offsets;
      if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < 0 || to < from) throw new TypeError(`\`${name}\` lies at ${from} to ${to}`);
      end = Math.max(end, to);
    }
    const { dtype, data_offsets: place } = header.program;
    if (dtype !== "I32" || (base + place[0]) % 16 || (place[1] - place[0]) % 4) throw new TypeError(`its program is ${dtype} at ${place}`);
    for (const field of ["vocab_size", "context"]) if (!Number.isInteger(config[field])) throw new TypeError(`its \`${field}\` is ${config[field]}`);
    return { config, program: { name: "program", start: base + place[0], end: base + place[1] }, size: base + end };
  } catch (cause) {
    if (cause instanceof InferError) throw cause;
    throw damaged(cause instanceof Error ? cause.message : String(cause), cause);
  }
}

/** @param {Uint8Array} bytes At least eight. */
function headerLength(bytes) {
  if (bytes.length < 8) throw damaged(`${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, 8);
  const length = view.getUint32(0, true);
  if (view.getUint32(4, true) || length > MAX_HEADER_BYTES) throw damaged("its header is too long");
  return length;
}

/**
 * @param {AsyncIterator<Uint8Array> & AsyncIterable<Uint8Array>} pieces
 * @returns {Promise<{bytes: Uint8Array, rest: AsyncIterable<Uint8Array>}>} The pieces with the header as one, and the rest.
 */
async function readHead(pieces) {
  let bytes = new Uint8Array();
  for (;;) {
    if (bytes.length >= 8 && bytes.length >= 8 + headerLength(bytes)) return { bytes, rest: pieces };
    const { value, done } = await pieces.next();
    if (done) throw damaged(`it ends after ${bytes.length} bytes`);
    const joined = new Uint8Array(bytes.length + value.length);
    joined.set(bytes);
    joined.set(value, bytes.length);
    bytes = joined;
  }
}

/**
 * @param {WeightSource} source
 * @returns {AsyncGenerator<Uint8Array>}
 */
async function* piecesOf(source) {
  if (source instanceof ArrayBuffer) yield new Uint8Array(source);
  else if (ArrayBuffer.isView(source)) yield new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  else {
    if (source instanceof Response && !source.ok) {
      throw new InferError(`The weight file ${source.url} is not there: status ${source.status}`, "fetch_error", { hint: "check the URL" });
    }
    const stream = source instanceof Blob ? source.stream() : source instanceof Response ? source.body : source;
    if (!(stream instanceof ReadableStream)) throw new InferError("The decoder's source is neither bytes nor a stream", "input_error");
    const reader = stream.getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      reader.releaseLock();
    }
  }
}

/** @type {Promise<WebAssembly.Module> | undefined} */
let compiled;

/**
 * The kernels, compiled once for all decoders.
 *
 * @param {URL} [url] Of `generation.wasm`.
 * @returns {Promise<WebAssembly.Module>}
 * @throws {InferError} `backend_unavailable`: they cannot be fetched, or this browser cannot compile them.
 */
export function kernelModule(url = new URL("./generation.wasm", import.meta.url)) {
  compiled ??= load(url).catch((cause) => {
    compiled = undefined;
    throw new InferError(`The kernels of text generation do not load: ${cause}`, "backend_unavailable", { hint: `is ${url} there?`, cause });
  });
  return compiled;
}

/** @param {URL} url */
async function load(url) {
  return WebAssembly.compile(await downloadBytes(url, { phase: "engine" }));
}

/**
 * @param {WebAssembly.Module} module
 * @returns {Kernels}
 */
function start(module) {
  const kernels = /** @type {Kernels} */ (/** @type {unknown} */ (new WebAssembly.Instance(module, {}).exports));
  const version = kernels.decoder_version?.();
  if (version !== VERSION) throw new InferError(`The kernels of text generation are of version ${version}, expected ${VERSION}`, "backend_unavailable");
  return kernels;
}

/**
 * @param {string} said
 * @param {unknown} [cause]
 */
function damaged(said, cause) {
  return new InferError(`Not a weight file of a decoder: ${said}`, "bundle_error", { hint: NOT_OURS, cause });
}

/** @param {number} place */
function align(place) {
  return Math.ceil(place / 64) * 64;
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
function checkWhole(name, value, low, high) {
  if (!Number.isInteger(value) || value < low || value > high) throw new InferError(`${name} is ${value}, expected ${low} to ${high}`, "input_error");
}

/**
 * @param {ArrayLike<number>} values
 * @param {string} name
 */
function wholes(values, name) {
  for (let i = 0; i < values.length; i++) {
    if (values[i] !== (values[i] | 0)) throw new InferError(`${name}[${i}] is ${values[i]}, expected a whole number of 32 bits`, "input_error");
  }
  return values;
}
