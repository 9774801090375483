/** Write a segment of an index in the page: the same bytes as `edge_infer/vectors/segment.py` writes of the same vectors. */

import { codeOf, encodeQuery } from "./query.js";
import { wordsOf } from "./words.js";

/** @typedef {import("./segment.js").Catalogue} Catalogue */
/** @typedef {{text: string | null, metadata: Record<string, any>}} Entry */
/** @typedef {{dtype: string, shape: number[], data: ArrayBufferView}} Written */

const MISSING = 0xffffffff;
const MAX_COUNT = 0xffff;
/** Bytes of an element. @type {Record<string, number>} */
const SIZES = { U8: 1, I8: 1, U16: 2, U32: 4, F32: 4, U64: 8, F64: 8 };

/**
 * @param {Pick<Catalogue, "dimension" | "metric" | "words">} catalogue
 * @param {number[]} ids Rising.
 * @param {ArrayLike<number>[]} vectors
 * @param {Entry[]} entries
 * @returns {Uint8Array<ArrayBuffer>}
 * @throws {EdgeInferError} `input_error`: a vector does not fit.
 */
export function writeSegment({ dimension, metric, words }, ids, vectors, entries) {
  const n = ids.length;
  const rows = vectors.map((vector) => encodeQuery(vector, dimension, metric));
  const sums = new Float64Array(dimension);
  for (const { floats } of rows) for (let i = 0; i < dimension; i++) sums[i] += floats[i];
  const mean = Float32Array.from(sums, (one) => one / n);
  const payload = entries.map(({ text, metadata }) => payloadOf(text, metadata));
  let end = 0n;
  const ends = BigUint64Array.from(payload, (one) => (end += BigInt(one.length)));
  /** @type {Record<string, Written>} */
  const tensors = {
    ids: { dtype: "U64", shape: [n], data: BigUint64Array.from(ids, BigInt) },
    payload: flat("U8", joined(payload)),
    "payload/ends": { dtype: "U64", shape: [n], data: ends },
    "vectors/i8": { dtype: "I8", shape: [n, dimension], data: joined(rows.map(({ codes }) => new Uint8Array(codes.buffer))) },
    "vectors/scale": { dtype: "F32", shape: [n], data: Float32Array.from(rows, ({ factor }) => factor) },
    "vectors/bits": { dtype: "U8", shape: [n, Math.ceil(dimension / 64) * 8], data: joined(rows.map(({ floats }) => codeOf(floats, mean))) },
    "vectors/mean": { dtype: "F32", shape: [dimension], data: mean },
    ...columnsOf(entries.map(({ metadata }) => metadata)),
    ...(words && entries.some(({ text }) => text) ? postingsOf(entries.map(({ text }) => text)) : {}),
  };
  return writeTensors(tensors, true);
}

/** @param {Record<string, number[]>} gone The rows that are deleted, by segment. @returns {Uint8Array<ArrayBuffer>} */
export function writeDeleted(gone) {
  return writeTensors(Object.fromEntries(Object.entries(gone).map(([path, rows]) => [path, flat("U32", Uint32Array.from(rows))])), false);
}

/** @param {string} dtype @param {ArrayBufferView & {length: number}} data @returns {Written} */
function flat(dtype, data) {
  return { dtype, shape: [data.length], data };
}

/** @param {Uint8Array[]} parts @returns {Uint8Array<ArrayBuffer>} */
function joined(parts) {
  const all = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of parts) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}

/**
 * @param {Record<string, Written>} tensors
 * @param {boolean} isAligned Whether tensors of larger elements come first.
 * @returns {Uint8Array<ArrayBuffer>}
 */
function writeTensors(tensors, isAligned) {
  const names = Object.keys(tensors).sort(byCharacters);
  if (isAligned) names.sort((one, other) => SIZES[tensors[other].dtype] - SIZES[tensors[one].dtype]);
  /** @type {Record<string, any>} */
  const header = {};
  let offset = 0;
  const chunks = names.map((name) => {
    const { dtype, shape, data } = tensors[name];
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  });
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(32);
  padded.set(text);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(padded.length), true);
  return joined([length, padded, ...chunks]);
}

/** @param {string} one @param {string} other @returns {number} The order of Python's texts. */
function byCharacters(one, other) {
  const [first, second] = [[...one], [...other]];
  for (let i = 0; i < Math.min(first.length, second.length); i++) {
    const order = Number(first[i].codePointAt(0)) - Number(second[i].codePointAt(0));
    if (order) return order;
  }
  return first.length - second.length;
}

/** @param {string | null} text @param {Record<string, any>} metadata @returns {Uint8Array} */
function payloadOf(text, metadata) {
  const document = { ...(text === null ? {} : { text }), ...(Object.keys(metadata).length ? { metadata } : {}) };
  return new TextEncoder().encode(Object.keys(document).length ? JSON.stringify(document) : "");
}

/** @param {Record<string, any>[]} metadata @returns {Record<string, Written>} The columns that can be filtered by. */
function columnsOf(metadata) {
  const isScalar = (/** @type {any} */ one) => ["string", "number", "boolean"].includes(typeof one);
  const names = [...new Set(metadata.flatMap((one) => Object.keys(one)))].filter((name) => metadata.some((one) => isScalar(one[name])));
  /** @type {Record<string, Written>} */
  const found = {};
  for (const name of names) {
    const values = metadata.map((one) => (isScalar(one[name]) ? one[name] : null));
    if (values.every((one) => one === null || typeof one === "number")) {
      found[`columns/${name}`] = flat("F64", Float64Array.from(values, (one) => one ?? NaN));
      continue;
    }
    /** @type {Map<any, number>} */
    const codes = new Map();
    const data = Uint32Array.from(values, (one) => {
      if (one === null) return MISSING;
      if (!codes.has(one)) codes.set(one, codes.size);
      return /** @type {number} */ (codes.get(one));
    });
    found[`columns/${name}`] = flat("U32", data);
    found[`values/${name}`] = flat("U8", new TextEncoder().encode(JSON.stringify([...codes.keys()])));
  }
  return found;
}

/** @param {(string | null)[]} texts @returns {Record<string, Written>} The words of each text. */
function postingsOf(texts) {
  /** @type {Map<string, [number, number][]>} */
  const found = new Map();
  const lengths = Uint32Array.from(texts, (text, row) => {
    const words = text ? wordsOf(text) : [];
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
    for (const [word, count] of counts) {
      const rows = found.get(word) ?? [];
      rows.push([row, Math.min(count, MAX_COUNT)]);
      found.set(word, rows);
    }
    return words.length;
  });
  const encoder = new TextEncoder();
  const terms = [...found.keys()].sort(byCharacters).map((word) => ({ bytes: encoder.encode(word), rows: /** @type {[number, number][]} */ (found.get(word)) }));
  let [byte, row] = [0, 0];
  const termEnds = Uint32Array.from(terms, ({ bytes }) => (byte += bytes.length));
  const ends = Uint32Array.from(terms, ({ rows }) => (row += rows.length));
  const all = terms.flatMap(({ rows }) => rows);
  return {
    "words/terms": flat("U8", joined(terms.map(({ bytes }) => bytes))),
    "words/term_ends": flat("U32", termEnds),
    "words/ends": flat("U32", ends),
    "words/rows": flat("U32", Uint32Array.from(all, ([one]) => one)),
    "words/counts": flat("U16", Uint16Array.from(all, ([, count]) => count)),
    "words/lengths": flat("U32", lengths),
  };
}
