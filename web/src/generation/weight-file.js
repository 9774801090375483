/** The weight file of a decoder, as `edge_infer.generation.weight_file` writes it: its header, and its bytes as they come. */

import { EdgeInferError } from "../errors.js";

/** @typedef {ArrayBuffer | Uint8Array | Blob | Response | ReadableStream<Uint8Array>} WeightSource */
/** @typedef {{name: string, start: number, end: number}} Place */
/**
 * @typedef {object} DecoderConfig What `edge_infer.generation.config` describes, as the weight file says it.
 * @property {string} architecture
 * @property {number} vocab_size
 * @property {number} hidden_size
 * @property {number} layers
 * @property {number} context
 */

const MAX_HEADER_BYTES = 16 * 2 ** 20;
const NOT_OURS = "write it with `edge-infer convert`";

/** Writes a file's bytes into memory as they come. */
export class Filling {
  /**
   * @param {import("./kernels.js").KernelMemory} memory
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
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.slice(8, 8 + length)));
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
    if (cause instanceof EdgeInferError) throw cause;
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
export async function readHead(pieces) {
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
export async function* piecesOf(source) {
  if (source instanceof ArrayBuffer) yield new Uint8Array(source);
  else if (ArrayBuffer.isView(source)) yield new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  else {
    if (source instanceof Response && !source.ok) {
      throw new EdgeInferError(`The weight file ${source.url} is not there: status ${source.status}`, "fetch_error", { hint: "check the URL" });
    }
    const stream = source instanceof Blob ? source.stream() : source instanceof Response ? source.body : source;
    if (!(stream instanceof ReadableStream)) throw new EdgeInferError("The decoder's source is neither bytes nor a stream", "input_error");
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

/**
 * @param {string} said
 * @param {unknown} [cause]
 */
export function damaged(said, cause) {
  return new EdgeInferError(`Not a weight file of a decoder: ${said}`, "bundle_error", { hint: NOT_OURS, cause });
}
