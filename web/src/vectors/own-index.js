/**
 * An index of the reader's own documents, made in the page and kept there: what `ownIndex` of `index.js` opens. Its files are those
 * that `edge_infer.Index` writes, and Python reads them.
 */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { readPieces } from "./documents.js";
import { SearchIndex, kernels } from "./search-index.js";
import { Segment } from "./segment.js";
import { writeDeleted, writeSegment } from "./segment-writer.js";

/** @typedef {import("./documents.js").Piece} Piece */
/** @typedef {import("./own-folder.js").OwnFolder} OwnFolder */
/** @typedef {import("./segment.js").Catalogue} Catalogue */
/** @typedef {import("./segment.js").FileEntry} FileEntry */
/** @typedef {File | {name: string, text: string}} Document */
/** @typedef {{added: number, kept: number, removed: number}} Filled How many pieces were new, there already, and there no more. */
/** @typedef {(texts: string[]) => Promise<any[]>} EmbedMany */
/** @typedef {{embed: EmbedMany, dimension: number, embedding: Record<string, any>, close?: () => Promise<void>}} Embedder */

/** So many pieces are embedded between two looks at progress and at the signal. */
const STEP = 16;
/** A segment is written for so many pieces, so that a closed page loses no more. */
const SEGMENT = 256;
/** With more segments than this the index is written again as one. */
const MOST_SEGMENTS = 24;

export class OwnIndex {
  /**
   * @param {OwnFolder} folder
   * @param {Embedder} embedder
   * @param {SearchIndex} index
   */
  constructor(folder, embedder, index) {
    this.folder = folder;
    this.embedder = embedder;
    this.index = index;
    /** Changes come one after the other, those of other pages too. @type {Promise<any>} */
    this.last = Promise.resolve();
  }

  /**
   * Open an index of the page's storage, or begin one.
   *
   * @param {OwnFolder} folder
   * @param {Embedder} embedder
   * @param {{renew?: boolean, onRenewed?: (done: number, total: number) => void}} [options] `renew` embeds the pieces of another model anew, and
   *   begins empty where what was kept is damaged; `onRenewed` is told how many pieces are done.
   * @returns {Promise<OwnIndex>}
   * @throws {EdgeInferError} `unsupported`: another model made what was kept. `integrity_error`, `bundle_error`: it is damaged. It stays as it is.
   */
  static async open(folder, embedder, { renew = false, onRenewed } = {}) {
    const { embedding, dimension } = embedder;
    const embed = async (/** @type {string} */ text) => (await embedder.embed([text]))[0];
    const fresh = () => new SearchIndex({ metric: "cosine", dimension, rows: "int8", words: true, embedding, next_id: 0, segments: [], deleted: null }, [], [], embed);
    return folder.alone(async () => {
      /** @type {SearchIndex | null} */
      let kept = null;
      try {
        kept = await SearchIndex.read((path) => folder.read(path), embed);
      } catch (error) {
        if (!(error instanceof EdgeInferError)) throw error;
        if (!renew) throw new EdgeInferError(error.message, error.code, { ...error, hint: "ownIndex(name, { model, renew: true }) begins it anew", details: { isKept: true } });
        await folder.clear();
      }
      const own = new OwnIndex(folder, embedder, kept ?? fresh());
      if (!kept || isOf(kept.catalogue, embedder)) return own;
      if (!renew) {
        const { name, revision } = kept.catalogue.embedding ?? {};
        throw new EdgeInferError(`what is kept was made by revision ${shortly(revision)} of ${name ?? "another model"}, and this is ${shortly(embedding.revision)} of ${embedding.name}`, "unsupported", {
          hint: "ownIndex(name, { model, renew: true }) embeds its documents anew",
          details: { isKept: true },
        });
      }
      const [rows, old] = [own.#rows(), filesOf(kept.catalogue)];
      own.index = fresh();
      const pieces = rows.map(({ text, metadata }) => /** @type {Piece} */ ({ text: text ?? "", metadata }));
      let done = 0;
      await own.#replace(pieces.map((_, i) => i), await own.#vectors(pieces, (count) => onRenewed?.((done += count), pieces.length)), pieces, old);
      return own;
    });
  }

  /** @returns {number} How many pieces there are. */
  get size() {
    return this.index.size;
  }

  /** @returns {boolean} Whether it is there at the next visit. */
  get isKept() {
    return this.folder.isKept;
  }

  /**
   * Find the nearest pieces; see `SearchIndex.search`.
   *
   * @param {string | ArrayLike<number>} query
   * @param {import("./search-index.js").SearchOptions} [options]
   * @returns {Promise<import("./search-index.js").Hit[]>}
   */
  async search(query, options) {
    return this.size ? this.index.search(query, options) : [];
  }

  /** @returns {{source: string, pieces: number}[]} The documents, in the order in which they were added. */
  documents() {
    /** @type {Map<string, number>} */
    const found = new Map();
    for (const { metadata } of this.#rows()) found.set(metadata.source, (found.get(metadata.source) ?? 0) + 1);
    return [...found].map(([source, pieces]) => ({ source, pieces }));
  }

  /**
   * Let the index hold the pieces of some documents: what is there already is not embedded again, what has changed is replaced.
   *
   * @param {Iterable<Document>} documents Files, or texts with the name of one.
   * @param {{onProgress?: (done: number, total: number) => void, signal?: AbortSignal}} [options]
   * @returns {Promise<Filled>} What was added stays there where the signal gives up.
   * @throws {EdgeInferError} `input_error`: a document is none; nothing was changed.
   */
  add(documents, options = {}) {
    return this.#after(() => this.#add([...documents], options));
  }

  /** @param {string} source The name of a document. @returns {Promise<number>} How many pieces it had. */
  remove(source) {
    return this.#after(() => this.#delete(this.#rows().filter(({ metadata }) => metadata.source === source)));
  }

  /** Forget all documents. */
  clear() {
    return this.#after(async () => {
      await this.folder.clear();
      this.index = this.#empty();
    });
  }

  /** Give the model's memory back; what was kept stays. */
  async dispose() {
    await this.last;
    await this.embedder.close?.();
  }

  #empty() {
    return new SearchIndex({ ...this.index.catalogue, next_id: 0, segments: [], deleted: null }, [], [], this.index.embed);
  }

  /** Take over what another page changed. @throws {EdgeInferError} `unsupported`: it made the index anew by another model. */
  async #reread() {
    const bytes = await this.folder.read("index.json");
    if (!bytes) {
      if (this.index.segments.length) this.index = this.#empty();
      return;
    }
    if (new TextDecoder().decode(bytes) === documentOf(this.index.catalogue)) return;
    const kept = await SearchIndex.read((path) => this.folder.read(path), this.index.embed);
    if (!kept || !isOf(kept.catalogue, this.embedder)) {
      throw new EdgeInferError("another page made this index anew by another model", "unsupported", { hint: "open it again: ownIndex(name, { model, renew: true })" });
    }
    this.index = kept;
  }

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  #after(work) {
    const result = this.last.then(() =>
      this.folder.alone(async () => {
        await this.#reread();
        return work();
      }),
    );
    this.last = result.catch(() => {});
    return result;
  }

  /** @returns {{place: number, row: number, text: string | null, metadata: Record<string, any>}[]} The pieces that are there. */
  #rows() {
    const { segments, alive } = this.index;
    return segments.flatMap((segment, place) =>
      Array.from({ length: segment.count }, (_, row) => row)
        .filter((row) => !alive[place] || alive[place]?.[row])
        .map((row) => ({ place, row, ...segment.payload(row) })),
    );
  }

  /** @param {Document[]} documents @param {{onProgress?: (done: number, total: number) => void, signal?: AbortSignal}} options @returns {Promise<Filled>} */
  async #add(documents, { onProgress, signal }) {
    signal?.throwIfAborted(); // before what has changed is taken out
    /** @type {Piece[]} */
    const pieces = [];
    for (const one of documents) {
      const content = "text" in one && typeof one.text === "string" ? one.text : new Uint8Array(await /** @type {File} */ (one).arrayBuffer());
      pieces.push(...readPieces(one.name, content));
    }
    const sources = new Set(documents.map(({ name }) => name));
    const key = (/** @type {{text: string | null, metadata: Record<string, any>}} */ { text, metadata }) => JSON.stringify([metadata.source, metadata.part, metadata.title ?? null, text]);
    const there = new Map(this.#rows().filter(({ metadata }) => sources.has(metadata.source)).map((one) => [key(one), one]));
    const fresh = pieces.filter((piece) => !there.delete(key(piece)));
    const removed = await this.#delete([...there.values()]);
    onProgress?.(pieces.length - fresh.length, pieces.length);
    let done = pieces.length - fresh.length;
    for (let start = 0; start < fresh.length; start += SEGMENT) {
      const part = fresh.slice(start, start + SEGMENT);
      await this.#append(await this.#vectors(part, (count) => onProgress?.((done += count), pieces.length), signal), part);
    }
    if (this.index.segments.length > MOST_SEGMENTS) await this.#compact();
    return { added: fresh.length, kept: pieces.length - fresh.length, removed };
  }

  /**
   * @param {Piece[]} pieces
   * @param {(count: number) => void} [onDone]
   * @param {AbortSignal} [signal]
   * @returns {Promise<ArrayLike<number>[]>}
   */
  async #vectors(pieces, onDone, signal) {
    const prefix = this.embedder.embedding.document_prefix ?? "";
    // Texts of about one length run together.
    const order = pieces.map((_, i) => i).sort((one, other) => pieces[one].text.length - pieces[other].text.length);
    const vectors = new Array(pieces.length);
    for (let at = 0; at < order.length; at += STEP) {
      signal?.throwIfAborted();
      const some = order.slice(at, at + STEP);
      const found = await this.embedder.embed(some.map((i) => prefix + pieces[i].text));
      some.forEach((i, n) => (vectors[i] = found[n]));
      onDone?.(some.length);
    }
    return vectors;
  }

  /** @param {ArrayLike<number>[]} vectors @param {Piece[]} pieces */
  async #append(vectors, pieces) {
    const { catalogue } = this.index;
    const ids = pieces.map((_, i) => catalogue.next_id + i);
    const bytes = writeSegment(catalogue, ids, vectors, pieces);
    const entry = await this.#file("segments", bytes, pieces.length);
    const next = { ...catalogue, next_id: catalogue.next_id + pieces.length, segments: [...catalogue.segments, entry] };
    await this.#commit(next, [...this.index.segments, new Segment(bytes, entry, next, await kernels())], [...this.index.alive, null]);
  }

  /** @param {{place: number, row: number}[]} rows @returns {Promise<number>} */
  async #delete(rows) {
    if (!rows.length) return 0;
    const { catalogue, segments } = this.index;
    const alive = this.index.alive.map((one) => (one ? one.slice() : null));
    for (const { place, row } of rows) {
      alive[place] ??= new Uint8Array(segments[place].count).fill(1);
      /** @type {Uint8Array} */ (alive[place])[row] = 0;
    }
    /** @type {Record<string, number[]>} */
    const gone = {};
    alive.forEach((mask, place) => {
      if (mask) gone[segments[place].entry.path] = Array.from(mask.keys()).filter((row) => !mask[row]);
    });
    const count = Object.values(gone).reduce((sum, { length }) => sum + length, 0);
    const old = catalogue.deleted;
    const deleted = await this.#file("deleted", writeDeleted(gone), count);
    await this.#commit({ ...catalogue, deleted }, segments, alive);
    if (old && old.path !== deleted.path) await this.folder.remove(old.path);
    return rows.length;
  }

  /** Write the pieces that are there as one segment. */
  async #compact() {
    const { catalogue, segments } = this.index;
    const rows = this.#rows();
    const vectors = rows.map(({ place, row }) => segments[place].decoded(row));
    const ids = rows.map(({ place, row }) => segments[place].id(row));
    await this.#replace(ids, vectors, rows.map(({ text, metadata }) => ({ text, metadata })), filesOf(catalogue));
  }

  /**
   * Let one segment stand for all that were there.
   *
   * @param {number[]} ids
   * @param {ArrayLike<number>[]} vectors
   * @param {{text: string | null, metadata: Record<string, any>}[]} pieces
   * @param {FileEntry[]} old
   */
  async #replace(ids, vectors, pieces, old) {
    const { catalogue } = this.index;
    const bytes = writeSegment(catalogue, ids, vectors, pieces);
    const entry = await this.#file("segments", bytes, pieces.length);
    const next = { ...catalogue, next_id: Math.max(catalogue.next_id, pieces.length), segments: [entry], deleted: null };
    await this.#commit(next, [new Segment(bytes, entry, next, await kernels())], [null]);
    for (const { path } of old) if (path !== entry.path) await this.folder.remove(path);
  }

  /** @param {string} kind @param {Uint8Array<ArrayBuffer>} bytes @param {number} rows @returns {Promise<FileEntry>} */
  async #file(kind, bytes, rows) {
    const digest = await sha256(bytes);
    const entry = { path: `${kind}/${digest.slice(0, 16)}.safetensors`, rows, size: bytes.length, sha256: digest };
    await this.folder.write(entry.path, bytes);
    return entry;
  }

  /** @param {Catalogue} catalogue @param {Segment[]} segments @param {(Uint8Array<ArrayBuffer> | null)[]} alive */
  async #commit(catalogue, segments, alive) {
    await this.folder.write("index.json", new TextEncoder().encode(documentOf(catalogue)));
    this.index = new SearchIndex(catalogue, segments, alive, this.index.embed);
  }
}

/** @param {Catalogue} catalogue @returns {string} The text of `index.json`. */
function documentOf(catalogue) {
  return `${JSON.stringify({ format: "edge-infer-index", version: 1, ...catalogue }, null, 1)}\n`;
}

/** @param {Catalogue} catalogue @returns {FileEntry[]} */
function filesOf({ segments, deleted }) {
  return deleted ? [...segments, deleted] : segments;
}

/** @param {string | undefined} revision */
function shortly(revision) {
  return revision ? revision.slice(0, 12) : "unknown";
}

/** @param {Catalogue} catalogue @param {Embedder} embedder @returns {boolean} Whether an index was made by this model. */
function isOf({ embedding, dimension }, embedder) {
  return embedding?.revision === embedder.embedding.revision && dimension === embedder.dimension;
}
