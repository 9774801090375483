/** A segment of an index in the memory of the search's kernels: `edge_infer/vectors/segment.py` says what it holds. */

import { EdgeInferError } from "../errors.js";
import { codeOf } from "./query.js";

/** @typedef {import("./query.js").Query} Query */
/** @typedef {{path: string, rows: number, size: number, sha256: string}} FileEntry */
/** @typedef {{metric: string, dimension: number, rows: string, segments: FileEntry[], deleted: FileEntry | null, embedding: Record<string, any> | null, words: boolean, next_id: number}} Catalogue */
/**
 * @typedef {object} Kernels What `source/vectors/search.c` exports.
 * @property {WebAssembly.Memory} memory
 * @property {WebAssembly.Global} __heap_base
 * @property {(data: number, scales: number, query: number, wide: number, allowed: number, picked: number, first: number, end: number,
 *   dimension: number, most: number, scores: number, rows: number) => number} vectors_scan
 * @property {(codes: number, query: number, allowed: number, first: number, end: number, words: number, found: number) => void} vectors_differ
 * @property {(found: number, rows: number, wanted: number, counts: number, limit: number, picked: number) => number} vectors_select
 */
/** @typedef {{score: number, row: number}} Scored */

const PAGE = 65_536;
const KINDS = /** @type {const} */ ({
  F64: Float64Array, F32: Float32Array, F16: Uint16Array, I8: Int8Array, U8: Uint8Array, U16: Uint16Array, U32: Uint32Array, U64: BigUint64Array,
});
/** @typedef {keyof typeof KINDS} Kind */

export class Segment {
  /**
   * @param {Uint8Array} file
   * @param {FileEntry} entry
   * @param {Catalogue} catalogue
   * @param {WebAssembly.Module} module The kernels.
   * @throws {EdgeInferError} `bundle_error`: it is no segment of this index.
   */
  constructor(file, entry, catalogue, module) {
    this.entry = entry;
    this.count = entry.rows;
    this.dimension = catalogue.dimension;
    this.kernels = /** @type {Kernels} */ (/** @type {unknown} */ (new WebAssembly.Instance(module).exports));
    // Before anything is placed by it: a wrong length would let the file lie elsewhere in the memory.
    const headerEnd = file.length < 8 ? Infinity : 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
    if (headerEnd > file.length) throw this.wrong("is no safetensors file: the header is cut");
    // The data of the file begin at a multiple of 16, so that each tensor does at one of its elements' size.
    const base = Math.ceil((Number(this.kernels.__heap_base.value) + headerEnd) / 16) * 16 - headerEnd;
    this.end = base + file.length;
    this.reserve(0);
    new Uint8Array(this.kernels.memory.buffer).set(file, base);
    /** @type {Record<string, {dtype: Kind, shape: number[], data_offsets: [number, number]}>} */
    this.header = this.readHeader(file, headerEnd);
    this.start = base + headerEnd;
    this.words = Math.ceil(this.dimension / 64);
    const { count: n, dimension: d } = this;
    for (const [name, kind, size] of /** @type {[string, Kind, number][]} */ ([
      ["ids", "U64", n], ["vectors/i8", "I8", n * d], ["vectors/scale", "F32", n], ["vectors/bits", "U8", n * 8 * this.words], ["vectors/mean", "F32", d],
      ["payload", "U8", -1], ["payload/ends", "U64", n],
    ])) this.check(name, kind, size);
    this.keeps = catalogue.rows === "int8" ? null : /** @type {Kind} */ (catalogue.rows.toUpperCase());
    if (this.keeps) this.check(`vectors/${catalogue.rows}`, this.keeps, n * d);
    this.columnNames = Object.keys(this.header).filter((name) => name.startsWith("columns/")).map((name) => name.slice(8));
    for (const name of this.columnNames) {
      const isOfNumbers = !this.header[`values/${name}`];
      this.check(`columns/${name}`, isOfNumbers ? "F64" : "U32", n);
      if (!isOfNumbers) this.check(`values/${name}`, "U8", -1);
    }
    if (this.header["words/lengths"]) this.checkWords();
  }

  /**
   * @param {Uint8Array} file
   * @param {number} end
   */
  readHeader(file, end) {
    try {
      const { __metadata__: _, ...header } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file.subarray(8, end)));
      const spans = Object.values(header).map((one) => one.data_offsets).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
      let reached = 0;
      for (const [from, to] of spans) {
        if (from !== reached || !(to >= from) || !Number.isSafeInteger(to)) throw new TypeError(`a tensor spans ${from} to ${to}`);
        reached = to;
      }
      if (reached !== file.length - end) throw new TypeError(`the tensors take ${reached} bytes`);
      return header;
    } catch (error) {
      throw this.wrong(`is no safetensors file: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** @param {string} said @returns {EdgeInferError} */
  wrong(said) {
    return new EdgeInferError(`\`${this.entry.path}\` ${said}`, "bundle_error", { hint: "fetch the index again, or build it again" });
  }

  /** @param {string} name @param {Kind} kind @param {number} size Of its elements; -1 for any. */
  check(name, kind, size) {
    const tensor = this.header[name];
    const count = tensor?.shape?.reduce((some, one) => some * one, 1);
    const bytes = tensor && tensor.data_offsets[1] - tensor.data_offsets[0];
    if (!tensor || tensor.dtype !== kind || (size >= 0 && count !== size) || bytes !== count * KINDS[kind].BYTES_PER_ELEMENT) {
      throw this.wrong(`has no tensor \`${name}\` of ${size < 0 ? "n" : size} ${kind}`);
    }
    if (this.place(name) % KINDS[kind].BYTES_PER_ELEMENT) throw this.wrong(`has the tensor \`${name}\` where no ${kind} can lie`);
  }

  /** Check that no search for words leaves their tensors, or takes longer than they are long. */
  checkWords() {
    for (const [name, kind, size] of /** @type {[string, Kind, number][]} */ ([
      ["terms", "U8", -1], ["term_ends", "U32", -1], ["ends", "U32", -1], ["rows", "U32", -1], ["counts", "U16", -1], ["lengths", "U32", this.count],
    ])) this.check(`words/${name}`, kind, size);
    const { terms, termEnds, ends, rows, counts } = /** @type {import("./postings.js").Postings} */ (this.postings());
    const fits = ends.length === termEnds.length && rows.length === counts.length && (ends.at(-1) ?? rows.length) === rows.length;
    if (!fits || (termEnds.at(-1) ?? terms.length) !== terms.length) throw this.wrong("has tensors `words/...` that do not fit together");
    if (ends.some((end, i) => i > 0 && end < ends[i - 1])) throw this.wrong("has `words/ends` that fall");
  }

  /**
   * Let the memory have so many bytes behind the file.
   *
   * @param {number} bytes
   * @returns {number} Where they begin.
   */
  reserve(bytes) {
    const { memory } = this.kernels;
    const start = Math.ceil(this.end / 16) * 16;
    const missing = start + bytes - memory.buffer.byteLength;
    try {
      if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    } catch (cause) {
      throw new EdgeInferError(`There is no memory for \`${this.entry.path}\``, "out_of_memory", { hint: "close other tabs, or use a smaller index", cause });
    }
    return start;
  }

  /**
   * @template {Kind} K
   * @param {string} name
   * @param {K} kind
   * @returns {InstanceType<(typeof KINDS)[K]>} The tensor where it lies; valid until the memory grows.
   */
  view(name, kind) {
    if (this.header[name]?.dtype !== kind) throw this.wrong(`has no tensor \`${name}\` of ${kind}`);
    const [from, to] = this.header[name].data_offsets;
    const type = /** @type {any} */ (KINDS[kind]);
    return new type(this.kernels.memory.buffer, this.start + from, (to - from) / type.BYTES_PER_ELEMENT);
  }

  /** @param {string} name @returns {number} Where the tensor lies. */
  place(name) {
    return this.start + this.header[name].data_offsets[0];
  }

  /** @param {number} row @returns {number} */
  id(row) {
    return Number(this.view("ids", "U64")[row]);
  }

  /** @param {number} row @returns {Float32Array} The vector as its 8-bit row keeps it. */
  decoded(row) {
    const scale = this.view("vectors/scale", "F32")[row];
    const codes = this.view("vectors/i8", "I8").subarray(row * this.dimension, (row + 1) * this.dimension);
    return Float32Array.from(codes, (one) => one * scale);
  }

  /** @returns {Map<string, import("./filter.js").Column>} The metadata by name. */
  columns() {
    /** @type {Map<string, import("./filter.js").Column>} */
    const found = new Map();
    for (const name of this.columnNames) {
      const isOfNumbers = !this.header[`values/${name}`];
      const values = isOfNumbers ? null : this.parse(this.view(`values/${name}`, "U8"), `the column \`${name}\``);
      if (values !== null && !Array.isArray(values)) throw this.wrong(`is damaged in the column \`${name}\``);
      found.set(name, { data: this.view(`columns/${name}`, isOfNumbers ? "F64" : "U32"), values });
    }
    return found;
  }

  /** @returns {import("./postings.js").Postings | null} The words; null where the index does not count them. */
  postings() {
    if (!this.header["words/lengths"]) return null;
    return {
      terms: this.view("words/terms", "U8"),
      termEnds: this.view("words/term_ends", "U32"),
      ends: this.view("words/ends", "U32"),
      rows: this.view("words/rows", "U32"),
      counts: this.view("words/counts", "U16"),
      lengths: this.view("words/lengths", "U32"),
    };
  }

  /** @param {number} row @returns {{text: string | null, metadata: Record<string, any>}} */
  payload(row) {
    const ends = this.view("payload/ends", "U64");
    const [from, to] = [row ? Number(ends[row - 1]) : 0, Number(ends[row])];
    const data = this.view("payload", "U8");
    if (from === to) return { text: null, metadata: {} };
    if (!(from <= to && to <= data.length)) throw this.wrong(`is damaged in the payload of row ${row}`);
    const { text = null, metadata = {} } = this.parse(data.subarray(from, to), `the payload of row ${row}`) ?? {};
    const isObject = typeof metadata === "object" && metadata !== null && !Array.isArray(metadata);
    if (!isObject || (text !== null && typeof text !== "string")) throw this.wrong(`is damaged in the payload of row ${row}`);
    return { text, metadata };
  }

  /** @param {Uint8Array} bytes @param {string} what */
  parse(bytes, what) {
    try {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.slice()));
    } catch (error) {
      throw this.wrong(`is damaged in ${what}: ${error instanceof Error ? error.message : error}`);
    }
  }

  /**
   * @param {Query} query
   * @param {number} k
   * @param {Uint8Array | null} mask A byte for each row, 0 where it is left out.
   * @param {number} candidates How many rows the 1-bit codes choose; 0 to compare all.
   * @returns {Scored[]} The best rows by their 8-bit codes, the best first.
   */
  scan(query, k, mask, candidates) {
    const { count: n, dimension: d, words, kernels } = this;
    const most = Math.min(k, n);
    const sizes = { wide: 2 * d, codes: d, bits: 8 * words, allowed: mask ? n : 0, found: candidates ? 2 * n : 0, counts: 4 * (64 * words + 1), picked: 4 * candidates, scores: 4 * most, rows: 4 * most };
    const places = /** @type {Record<keyof typeof sizes, number>} */ ({});
    let size = 0;
    for (const name of /** @type {(keyof typeof sizes)[]} */ (Object.keys(sizes))) {
      places[name] = size;
      size += Math.ceil(sizes[name] / 16) * 16;
    }
    const start = this.reserve(size);
    for (const name of /** @type {(keyof typeof sizes)[]} */ (Object.keys(sizes))) places[name] += start;
    const { buffer } = kernels.memory;
    new Int8Array(buffer).set(query.codes, places.codes);
    if (mask) new Uint8Array(buffer).set(mask, places.allowed);
    const allowed = mask ? places.allowed : 0;
    let end = n;
    if (candidates) {
      new Uint8Array(buffer).set(codeOf(query.floats, this.view("vectors/mean", "F32")), places.bits);
      kernels.vectors_differ(this.place("vectors/bits"), places.bits, allowed, 0, n, words, places.found);
      end = kernels.vectors_select(places.found, n, Math.min(candidates, n), places.counts, 64 * words + 1, places.picked);
    }
    const held = kernels.vectors_scan(
      this.place("vectors/i8"), this.place("vectors/scale"), places.codes, places.wide, allowed, candidates ? places.picked : 0, 0, end, d, most, places.scores, places.rows,
    );
    const scores = new Float32Array(buffer, places.scores, held);
    const rows = new Uint32Array(buffer, places.rows, held);
    return Array.from(rows, (row, i) => ({ score: scores[i], row })).sort((one, other) => other.score - one.score || one.row - other.row);
  }

  /**
   * @param {Query} query
   * @param {number[]} rows
   * @returns {number[]} Their scores by the kept vectors, added up in double precision from first to last.
   */
  exact(query, rows) {
    const { dimension: d } = this;
    if (this.keeps === "F32") {
      const data = this.view("vectors/f32", "F32");
      return rows.map((row) => dot(d, (i) => data[row * d + i], query.floats));
    }
    const data = this.view("vectors/f16", "F16");
    return rows.map((row) => dot(d, (i) => fromHalf(data[row * d + i]), query.floats));
  }
}

/** @param {number} length @param {(i: number) => number} at @param {Float32Array} floats */
function dot(length, at, floats) {
  let total = 0;
  for (let i = 0; i < length; i++) total += at(i) * floats[i];
  return Math.fround(total);
}

/** @param {number} bits Of a float16. @returns {number} */
function fromHalf(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}
