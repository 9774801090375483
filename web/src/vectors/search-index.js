/** An index in the page: fetched and checked, and searched by the kernels as Python does, with the same ids and scores. */

import { compileBytes } from "../engines/wasm-module.js";
import { EdgeInferError } from "../errors.js";
import { downloadBytes } from "../fetch/download.js";
import { sha256 } from "../fetch/sha256.js";
import { Filter } from "./filter.js";
import { scoreWords } from "./postings.js";
import { encodeQuery } from "./query.js";
import { Segment } from "./segment.js";

/** @typedef {import("./segment.js").Catalogue} Catalogue */
/** @typedef {import("./segment.js").FileEntry} FileEntry */
/** @typedef {{id: number, score: number, text: string | null, metadata: Record<string, any>}} Hit */
/** @typedef {{score: number, id: number, place: number, row: number}} Found */
/** @typedef {(text: string) => Promise<any>} Embed Gives the vector of a text: numbers, or a tensor with its `data`. */
/**
 * @typedef {object} SearchOptions
 * @property {number} [k] The most entries to return; 10 unless given.
 * @property {import("./filter.js").Where} [where] What their metadata must be.
 * @property {boolean} [fullScan] Whether each 8-bit row is compared, however many there are.
 * @property {"vectors" | "words" | "hybrid"} [mode] How a text is looked for: by its vector unless given.
 */
/**
 * @typedef {object} IndexOptions
 * @property {Embed} [embed] What makes vectors of texts: a pipeline of the bundle that the index was built by.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {string} [apiKey] What the index's server asks for, where it has tenants.
 * @property {AbortSignal} [signal]
 */

const [FORMAT, VERSION] = ["edge-infer-index", 1];
const MAX_K = 10_000;
/** Indexes of more rows are searched by their 1-bit codes first: `edge_infer/vectors/search.py`. */
const PREFILTER_ROWS = 100_000;
const [LEAST, SHARE, WHOLE, EXACT] = [1000, 100, 8, 200];
/** Of reciprocal rank fusion: its constant, and how many of each list are looked at. */
const [FUSION, DEPTH] = [60, 100];
/** @type {Promise<WebAssembly.Module> | undefined} */
let compiled;

export class SearchIndex {
  /**
   * @param {Catalogue} catalogue
   * @param {Segment[]} segments
   * @param {(Uint8Array<ArrayBuffer> | null)[]} alive For each segment a byte for each row, 0 where it is deleted.
   * @param {Embed} [embed]
   */
  constructor(catalogue, segments, alive, embed) {
    this.catalogue = catalogue;
    this.segments = segments;
    this.alive = alive;
    this.embed = embed;
    /** What brought it from a store; undefined where it is of none. @type {import("../sync/pull.js").Update | undefined} */
    this.update = undefined;
  }

  /**
   * Fetch an index.
   *
   * @param {URL | string} url The address of its folder.
   * @param {IndexOptions} [options]
   * @returns {Promise<SearchIndex>}
   * @throws {EdgeInferError} `bundle_error`: it is no index. `integrity_error`: a file is not the one that it names. `fetch_error`.
   */
  static async open(url, { embed, onProgress, apiKey, signal } = {}) {
    const folder = new URL(`${String(url).replace(/\/$/, "")}/`, globalThis.location?.href);
    const hint = "edge-infer index build DOCS --model BUNDLE -o NAME.index";
    const headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : undefined;
    const get = (/** @type {string} */ path, total = 0) => downloadBytes(new URL(path, folder), { phase: "model", total, onProgress, signal, hint, headers });
    const [bytes, module] = await Promise.all([get("index.json"), kernels()]);
    const catalogue = readCatalogue(bytes, folder);
    const checked = async (/** @type {FileEntry} */ entry) => {
      const file = await get(entry.path, entry.size);
      const got = file.length === entry.size ? await sha256(file) : `${file.length} bytes`;
      if (got === entry.sha256) return file;
      const expected = file.length === entry.size ? entry.sha256 : `${entry.size} bytes`;
      throw new EdgeInferError(`\`${entry.path}\` of ${folder} has ${got}, expected ${expected}`, "integrity_error", { hint: "copy the index again" });
    };
    const segments = [];
    for (const entry of catalogue.segments) segments.push(new Segment(await checked(entry), entry, catalogue, module));
    /** @type {(Uint8Array<ArrayBuffer> | null)[]} */
    const alive = segments.map(() => null);
    if (catalogue.deleted) markDeleted(await checked(catalogue.deleted), catalogue, segments, alive);
    return new SearchIndex(catalogue, segments, alive, embed);
  }

  /**
   * @param {[string, Uint8Array<ArrayBuffer>][]} files Every file of its folder, by path.
   * @returns {Promise<SearchIndex>}
   * @throws {EdgeInferError} `bundle_error`: a file is wrong, or not the one that it names. `input_error`: they are those of something else.
   */
  static async ofFiles(files) {
    const known = new Map(files);
    if (known.has("manifest.json") || !known.has("index.json")) {
      throw new EdgeInferError("It is a model, and no index of vectors", "input_error", { hint: "load(url), or pipeline(url)" }); // nothing is wrong with it
    }
    try {
      return /** @type {SearchIndex} */ (await SearchIndex.read(async (path) => known.get(path) ?? null));
    } catch (error) {
      if (!(error instanceof EdgeInferError) || error.code !== "integrity_error") throw error;
      throw new EdgeInferError(error.message, "bundle_error", { hint: "publish the index again", cause: error }); // the store's signature is right
    }
  }

  /**
   * Read an index that is kept in the page.
   *
   * @param {(path: string) => Promise<Uint8Array<ArrayBuffer> | null>} read Gives a file of its folder; null where there is none.
   * @param {Embed} [embed]
   * @returns {Promise<SearchIndex | null>} Null where there is no index.
   * @throws {EdgeInferError} `bundle_error`: it is no index. `integrity_error`: a file is not the one that it names.
   */
  static async read(read, embed) {
    const [bytes, module] = await Promise.all([read("index.json"), kernels()]);
    if (!bytes) return null;
    const catalogue = readCatalogue(bytes, new URL("page:/"));
    const checked = async (/** @type {FileEntry} */ { path, sha256: expected }) => {
      const file = await read(path);
      if (file && (await sha256(file)) === expected) return file;
      throw new EdgeInferError(`\`${path}\` of the index is missing or damaged`, "integrity_error", { hint: "add the documents again" });
    };
    const segments = [];
    for (const entry of catalogue.segments) segments.push(new Segment(await checked(entry), entry, catalogue, module));
    /** @type {(Uint8Array<ArrayBuffer> | null)[]} */
    const alive = segments.map(() => null);
    if (catalogue.deleted) markDeleted(await checked(catalogue.deleted), catalogue, segments, alive);
    return new SearchIndex(catalogue, segments, alive, embed);
  }

  /**
   * Check that a bundle is the one that the vectors were made by.
   *
   * @param {Uint8Array<ArrayBuffer>} manifest Its `manifest.json`.
   * @returns {Promise<void>}
   * @throws {EdgeInferError} `integrity_error`: it is of other weights.
   */
  async checkRevision(manifest) {
    const [expected, got] = [this.catalogue.embedding?.revision, await sha256(manifest)];
    if (expected === undefined || expected === got) return;
    throw new EdgeInferError(`The model is not that of the index: revision ${got.slice(0, 12)}, expected ${expected.slice(0, 12)}`, "integrity_error", {
      hint: "use the bundle that the index was built by, or build the index again",
      details: { expected, got },
    });
  }

  /** @returns {number} How many entries there are, without the deleted ones. */
  get size() {
    const { segments, deleted } = this.catalogue;
    return segments.reduce((sum, { rows }) => sum + rows, 0) - (deleted?.rows ?? 0);
  }

  /**
   * Find the nearest entries.
   *
   * @param {string | ArrayLike<number> | Blob | ImageBitmap | {width: number, height: number}} query A text, a vector, or an image where the index is of images.
   * @param {SearchOptions} [options]
   * @returns {Promise<Hit[]>} The nearest first; of two with the same score the lower id first.
   * @throws {EdgeInferError} `input_error`: the query does not fit. `bundle_error`: the index is damaged.
   */
  async search(query, options = {}) {
    const { mode = "vectors" } = options;
    const isOfImages = /** @type {any} */ (this.embed)?.task === "image-feature-extraction";
    if (typeof query !== "string") {
      if (!isOfImages || Array.isArray(query) || query instanceof Float32Array || query instanceof Float64Array) {
        return this.searchVector(/** @type {ArrayLike<number>} */ (query), options);
      }
      return this.searchVector((await /** @type {any} */ (this.embed)(query)).data, options);
    }
    if (mode === "words") return this.find({ ...options, text: query });
    if (isOfImages) throw new EdgeInferError("This index is of images", "input_error", { hint: 'search(file), or { mode: "words" } for the names of files' });
    if (!this.embed) {
      throw new EdgeInferError("The index was opened without a model for texts", "input_error", { hint: 'openIndex(url, { model: "/models/minilm" })' });
    }
    const answer = await this.embed((this.catalogue.embedding?.query_prefix ?? "") + query);
    return this.find({ ...options, text: query, vector: answer?.data ?? answer });
  }

  /**
   * Find the nearest entries to a vector, without waiting for anything.
   *
   * @param {ArrayLike<number>} vector
   * @param {SearchOptions} [options]
   * @returns {Hit[]} As `search` gives them.
   */
  searchVector(vector, options = {}) {
    return this.find({ ...options, vector });
  }

  /**
   * @param {SearchOptions & {text?: string, vector?: ArrayLike<number>}} options The vector is not needed for words alone.
   * @returns {Hit[]}
   */
  find({ k = 10, where, fullScan = false, mode = "vectors", text, vector = [] }) {
    if (!Number.isInteger(k) || k < 1 || k > MAX_K) throw new EdgeInferError(`\`k\` is ${k}, expected 1 to ${MAX_K}`, "input_error", { hint: "k: 10" });
    if (!["vectors", "words", "hybrid"].includes(mode)) throw new EdgeInferError(`\`mode\` is ${JSON.stringify(mode)}`, "input_error", { hint: "use vectors, words or hybrid" });
    if (mode !== "vectors" && text === undefined) throw new EdgeInferError("A vector has no words to look for", "input_error", { hint: 'mode: "vectors"' });
    if (mode !== "vectors" && !this.catalogue.words) throw new EdgeInferError("The index does not count words", "input_error", { hint: 'mode: "vectors"' });
    const masks = this.masks(where);
    if (mode === "words") return this.hits(this.byWords(String(text), masks, k));
    const asked = encodeQuery(vector, this.catalogue.dimension, this.catalogue.metric);
    const deep = mode === "hybrid" ? Math.max(DEPTH, k) : k;
    const found = this.nearest(asked, deep, masks, fullScan);
    if (mode === "hybrid") return this.hits(fuse([found, this.byWords(String(text), masks, deep)]).slice(0, k));
    if (this.catalogue.rows === "int8") for (const one of found) one.score = Math.fround(one.score * asked.factor);
    return this.hits(found);
  }

  /** @param {import("./filter.js").Where | undefined} where @returns {(Uint8Array | null)[]} */
  masks(where) {
    if (!where || Object.keys(where).length === 0) return this.alive;
    const filter = new Filter(where, [...new Set(this.segments.flatMap(({ columnNames }) => columnNames))].sort());
    return this.segments.map((segment, place) => {
      const mask = filter.mask(segment.columns(), segment.count);
      const alive = this.alive[place];
      return alive ? mask.map((one, row) => one & alive[row]) : mask;
    });
  }

  /**
   * @param {import("./query.js").Query} query
   * @param {number} k
   * @param {(Uint8Array | null)[]} masks
   * @param {boolean} fullScan
   * @returns {Found[]}
   */
  nearest(query, k, masks, fullScan) {
    const keeps = this.catalogue.rows !== "int8";
    const wanted = keeps ? Math.max(EXACT, 4 * k) : k;
    const isLarge = !fullScan && this.segments.reduce((sum, { count }) => sum + count, 0) > PREFILTER_ROWS;
    const found = this.segments.flatMap((segment, place) => {
      const mask = masks[place];
      const left = mask ? mask.reduce((sum, one) => sum + one, 0) : segment.count;
      const candidates = Math.max(LEAST, Math.floor(segment.count / SHARE), 4 * k, wanted);
      const scored = left ? segment.scan(query, wanted, mask, isLarge && left > WHOLE * candidates ? candidates : 0) : [];
      return scored.map(({ score, row }) => ({ score, id: segment.id(row), place, row }));
    });
    if (!keeps) return best(found, k);
    const near = best(found, wanted);
    this.segments.forEach((segment, place) => {
      const here = near.filter((one) => one.place === place);
      segment.exact(query, here.map(({ row }) => row)).forEach((score, i) => (here[i].score = score));
    });
    return best(near, k);
  }

  /** @param {string} text @param {(Uint8Array | null)[]} masks @param {number} k @returns {Found[]} */
  byWords(text, masks, k) {
    const scores = scoreWords(this.segments.map((one) => one.postings()), text);
    const found = scores.flatMap((here, place) =>
      [...here].filter(([row]) => !masks[place] || masks[place][row]).map(([row, score]) => ({ score, id: this.segments[place].id(row), place, row })),
    );
    return best(found, k);
  }

  /** @param {Found[]} found @returns {Hit[]} */
  hits(found) {
    return found.map(({ id, score, place, row }) => ({ id, score, ...this.segments[place].payload(row) }));
  }
}

/** @param {Found[]} found @param {number} k @returns {Found[]} */
function best(found, k) {
  return found.sort((one, other) => other.score - one.score || one.id - other.id).slice(0, k);
}

/** @param {Found[][]} lists @returns {Found[]} One list: a row's score is the sum of `1 / (60 + rank)`. */
function fuse(lists) {
  /** @type {Map<number, Found>} */
  const found = new Map();
  for (const list of lists) {
    list.forEach((row, rank) => found.set(row.id, { ...row, score: (found.get(row.id)?.score ?? 0) + 1 / (FUSION + rank + 1) }));
  }
  return best([...found.values()], found.size);
}

/** @returns {Promise<WebAssembly.Module>} The kernels, compiled once. */
export async function kernels() {
  compiled ??= downloadBytes(new URL("./vectors.wasm", import.meta.url), { phase: "engine" }).then(compileBytes);
  try {
    return await compiled;
  } catch (error) {
    compiled = undefined; // the next index asks for them again
    throw error;
  }
}

/**
 * @param {Uint8Array} bytes
 * @param {URL} folder
 * @returns {Catalogue}
 */
function readCatalogue(bytes, folder) {
  const wrong = (/** @type {string} */ said) => new EdgeInferError(`${folder}index.json ${said}`, "bundle_error", { hint: "build the index again, or update edge-infer" });
  let document;
  try {
    document = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw wrong("is not JSON");
  }
  if (document?.format !== FORMAT) throw wrong("does not describe an index");
  if (document.version !== VERSION) throw wrong(`is of version ${document.version}, expected ${VERSION}`);
  const { metric, dimension, rows, segments, deleted } = document;
  const isWhole = (/** @type {unknown} */ one, least = 0) => Number.isSafeInteger(one) && Number(one) >= least;
  const isFile = (/** @type {any} */ one) =>
    /^(segments|deleted)\/[0-9a-f]{16}\.safetensors$/.test(one?.path) && /^[0-9a-f]{64}$/.test(one.sha256) && isWhole(one.size) && isWhole(one.rows);
  if (!["cosine", "dot"].includes(metric)) throw wrong(`has the metric ${JSON.stringify(metric)}`);
  if (!["int8", "f16", "f32"].includes(rows)) throw wrong(`has the rows ${JSON.stringify(rows)}`);
  if (!isWhole(dimension, 1) || dimension > 32_768) throw wrong(`has the dimension ${dimension}`);
  if (!Array.isArray(segments) || ![...segments, ...(deleted ? [deleted] : [])].every(isFile)) throw wrong("names files that cannot be");
  if (new Set(segments.map(({ path }) => path)).size < segments.length) throw wrong("names a file twice");
  return document;
}

/**
 * @param {Uint8Array} file
 * @param {Catalogue} catalogue
 * @param {Segment[]} segments
 * @param {(Uint8Array<ArrayBuffer> | null)[]} alive
 */
function markDeleted(file, catalogue, segments, alive) {
  const { path, rows } = /** @type {FileEntry} */ (catalogue.deleted);
  let left = rows;
  try {
    const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
    for (const [name, { dtype, data_offsets: [from, to] }] of Object.entries(header)) {
      const place = catalogue.segments.findIndex((one) => one.path === name);
      if (dtype !== "U32" || place < 0) throw new TypeError(`the tensor ${name}`);
      const mask = new Uint8Array(segments[place].count).fill(1);
      for (const row of new Uint32Array(file.slice(8 + length + from, 8 + length + to).buffer)) {
        if (!mask[row]) throw new TypeError(`row ${row}`);
        mask[row] = 0;
        left--;
      }
      alive[place] = mask;
    }
    if (left) throw new TypeError(`it does not name ${rows} entries`);
  } catch (error) {
    throw new EdgeInferError(`\`${path}\` is damaged: ${error instanceof Error ? error.message : error}`, "bundle_error", { hint: "build the index again" });
  }
}
