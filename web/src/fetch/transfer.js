/** Download a file whose size and hashes are known: each part of 1 MiB is checked, and a cut download is resumed after its last good part. */

import { Cut, ENDED_EARLY, PAUSE_MS, RETRIES, StallTimer, mayBeCut } from "./download.js";
import { ended } from "./listed.js";
import { EdgeInferError } from "../errors.js";
import { sha256, unshared } from "./sha256.js";

/** The bytes of a part; `edge_infer.bundle.manifest.PART_SIZE`. */
export const PART_BYTES = 2 ** 20;

const PIECE_BYTES = 2 ** 18;
// How far a download may run ahead of what was checked and written.
const MOST_UNCHECKED = 4 * PART_BYTES;

/** @typedef {{path: string, size: number, sha256: string, parts?: string[]}} FileEntry A file as a manifest lists it. */
/** @typedef {import("./download.js").OnProgress} OnProgress */
/**
 * @typedef {object} TransferOptions
 * @property {Uint8Array} [have] The good parts that are there already.
 * @property {number} [good] How many bytes are good already, where they are not given by `have`.
 * @property {boolean} [passOn] Whether a part is let go once `onPart` has it: then nothing is returned, and little is held.
 * @property {(size: number) => Uint8Array<ArrayBuffer>} [into] Gives the memory for the file; it stays where it is until the end.
 * @property {(offset: number, bytes: Uint8Array<ArrayBuffer>) => Promise<void>} [onPart] Told each part that was checked.
 * @property {OnProgress} [onProgress]
 * @property {AbortSignal} [signal]
 * @property {string} [hint] What to do where the file is missing.
 * @property {Record<string, string>} [headers] What to send with each request.
 * @property {number} [stallMs] How long a server may send nothing; 30 s unless given.
 */

/** @typedef {{bytes: Uint8Array<ArrayBuffer> | Window, good: number}} State */

/**
 * Read a body into the same memory again and again, where the browser can; its pieces would wait for the garbage collector.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @returns {Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "cancel">} A piece is valid until the next one is asked for.
 */
function readerOfOneBuffer(body) {
  let reader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return body.getReader();
  }
  const own = reader;
  let buffer = new ArrayBuffer(PIECE_BYTES);
  const read = async () => {
    const { value, done } = await own.read(new Uint8Array(buffer));
    if (value) buffer = value.buffer;
    return done ? { value: undefined, done } : { value, done };
  };
  return { read, cancel: (reason) => own.cancel(reason) };
}

/** The parts of a file that are on their way: those before are let go. */
class Window {
  /** @type {Map<number, Uint8Array<ArrayBuffer>>} */
  parts = new Map();
  /** Used again: what is let go waits for the garbage collector. @type {Uint8Array<ArrayBuffer>[]} */
  spare = [];

  /**
   * @param {Uint8Array} bytes
   * @param {number} at
   */
  set(bytes, at) {
    for (let from = 0; from < bytes.length; ) {
      const [number, offset] = [Math.floor((at + from) / PART_BYTES), (at + from) % PART_BYTES];
      const part = this.parts.get(number) ?? this.spare.pop() ?? new Uint8Array(PART_BYTES);
      this.parts.set(number, part);
      const end = Math.min(bytes.length, from + PART_BYTES - offset);
      part.set(bytes.subarray(from, end), offset);
      from = end;
    }
  }

  /**
   * @param {number} start
   * @param {number} end In the same part.
   * @returns {Uint8Array<ArrayBuffer>}
   */
  subarray(start, end) {
    const offset = start % PART_BYTES;
    return (this.parts.get(Math.floor(start / PART_BYTES)) ?? new Uint8Array(0)).subarray(offset, offset + end - start);
  }

  /** @param {number} end The start of the first part that is kept. */
  drop(end) {
    const number = Math.ceil(end / PART_BYTES) - 1;
    const part = this.parts.get(number);
    if (part) this.spare.push(part);
    this.parts.delete(number);
  }
}

/**
 * Count the leading bytes that are right.
 *
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {FileEntry} entry
 * @returns {Promise<number>} A multiple of a part's size, or all.
 */
export async function goodBytes(bytes, entry) {
  if (bytes.length > entry.size) return 0;
  if (!entry.parts?.length) return bytes.length === entry.size && (await sha256(bytes)) === entry.sha256 ? entry.size : 0;
  let good = 0;
  for (const expected of entry.parts) {
    const end = Math.min(good + PART_BYTES, entry.size);
    if (end > bytes.length || (await sha256(bytes.subarray(good, end))) !== expected) break;
    good = end;
  }
  return good;
}

/**
 * @param {URL} url
 * @param {FileEntry} entry
 * @param {TransferOptions} options
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {EdgeInferError} `fetch_error` or `integrity_error`; the signal's reason where it is aborted.
 */
export async function transfer(url, entry, options) {
  const { have, into, passOn, good = have?.length ?? 0 } = options;
  const bytes = passOn ? new Uint8Array(0) : (into?.(entry.size) ?? new Uint8Array(entry.size));
  if (have && have.buffer !== bytes.buffer) bytes.set(have);
  /** @type {State} */
  const state = { bytes: passOn ? new Window() : bytes, good };
  /** What was wrong where an answer ended early. */
  let short = "";
  for (let failures = 0; state.good < entry.size || entry.size === 0; ) {
    const before = state.good;
    try {
      await pull(url, entry, state, options);
      if (entry.size === 0) break;
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof Cut)) throw error;
      // Twice the same: the server has no more.
      const said = error.message === ENDED_EARLY && error.cause instanceof EdgeInferError ? error.cause.message : "";
      if (said && said === short) throw error.cause;
      short = said;
      failures = state.good > before ? 1 : failures + 1;
      if (failures > RETRIES) {
        throw new EdgeInferError(`The download of ${url} was cut after ${state.good} of ${entry.size} bytes: ${error.message}`, "fetch_error", {
          hint: "load it again: what has arrived is kept where the browser has storage",
          details: { url: url.href, loaded: state.good, size: entry.size },
          cause: error,
        });
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * failures));
    }
  }
  return bytes;
}

/**
 * Send one request and read its answer.
 *
 * @param {URL} url
 * @param {FileEntry} entry
 * @param {State} state
 * @param {TransferOptions} options
 */
async function pull(url, entry, state, { onPart, onProgress, signal, hint = "", headers, stallMs }) {
  const timer = new StallTimer(signal, stallMs);
  const response = await timer.wait(() => start(url, state.good, timer.signal, hint, headers));
  // A server without ranges sends the file from its start.
  if (response.status !== 206) state.good = 0;
  const file = entry.path.split("/").pop() ?? "";
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body);
  const reader = state.bytes instanceof Window ? readerOfOneBuffer(body) : body.getReader();
  const from = state.good;
  let at = from;
  // Checked beside the reading: a stream that is cut drops what nobody has read yet.
  let checked = Promise.resolve();
  /** @type {unknown} */
  let failure;
  try {
    for (;;) {
      const { value, done } = await timer.read(reader);
      if (failure) throw failure;
      if (done) break;
      if (at + value.length > entry.size) throw wrong(entry, url, `more than ${entry.size} bytes`, `${entry.size} bytes`);
      state.bytes.set(value, at);
      at += value.length;
      const there = at;
      checked = checked.then(() => check(entry, url, state, there, onPart)).catch((error) => void (failure ??= error));
      onProgress?.({ phase: "model", file, loaded: at, total: entry.size, cached: false });
      if (at - state.good > MOST_UNCHECKED) await checked;
    }
  } catch (error) {
    await reader.cancel().catch(() => {}); // a stream that was cut cannot be cancelled, and need not be
    throw error;
  } finally {
    await checked;
  }
  if (failure) throw failure;
  if (at < entry.size) {
    const short = wrong(entry, url, `${at} bytes`, `${entry.size} bytes`);
    throw entry.parts?.length && mayBeCut(response, at - from) ? new Cut(ENDED_EARLY, { cause: short }) : short;
  }
  ended(url, response);
  if (entry.size === 0 && entry.sha256 !== (await sha256(state.bytes.subarray(0, 0)))) throw wrong(entry, url, "0 bytes", `sha256 ${entry.sha256}`);
}

/**
 * @param {URL} url
 * @param {number} from
 * @param {AbortSignal} signal
 * @param {string} hint
 * @param {Record<string, string>} [more] Headers.
 * @returns {Promise<Response>}
 */
async function start(url, from, signal, hint, more) {
  const headers = from > 0 ? { ...more, Range: `bytes=${from}-` } : more;
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", headers, signal });
  } catch (cause) {
    if (from > 0) throw new Cut(`${url} cannot be reached`, { cause });
    throw new EdgeInferError(`${url} cannot be reached`, "fetch_error", {
      hint: "is the server running? `edge-infer serve`",
      details: { url: url.href },
      cause,
    });
  }
  const { status } = response;
  const begins = Number(/^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "")?.[1] ?? -1);
  if (status === 416 || (status === 206 && begins !== from)) {
    // A server that misunderstands ranges is asked for the whole file.
    await response.body?.cancel();
    if (from > 0) return start(url, 0, signal, hint, more);
    throw new EdgeInferError(`${url} answers with a range where the whole file was asked for`, "fetch_error", { hint, details: { url: url.href, status } });
  }
  if (!response.ok || !response.body) {
    throw new EdgeInferError(`${url} answers with status ${status}`, "fetch_error", { hint, details: { url: url.href, status } });
  }
  if (/^text\/html/.test(response.headers.get("content-type") ?? "")) {
    await response.body.cancel();
    throw new EdgeInferError(`${url} answers with an HTML page where a model file was expected`, "fetch_error", {
      hint: "the server sends its start page for unknown addresses, or wants a login: open the address in a tab and look",
      details: { url: url.href, status },
    });
  }
  return response;
}

/**
 * Check the parts that are complete.
 *
 * @param {FileEntry} entry
 * @param {URL} url
 * @param {State} state
 * @param {number} at How many bytes are there.
 * @param {TransferOptions["onPart"]} onPart
 */
async function check(entry, url, state, at, onPart) {
  const parts = entry.parts?.length ? entry.parts : [entry.sha256];
  const step = entry.parts?.length ? PART_BYTES : entry.size;
  for (;;) {
    const end = Math.min(state.good + step, entry.size);
    if (end > at || state.good === entry.size) return;
    const part = unshared(state.bytes.subarray(state.good, end));
    const [found, expected] = [await sha256(part), parts[state.good / step]];
    if (found !== expected) {
      const where = parts.length > 1 ? `part ${state.good / step + 1} of ${parts.length}: ` : "";
      throw wrong(entry, url, `${where}sha256 ${found}`, `sha256 ${expected}`);
    }
    await onPart?.(state.good, part);
    state.good = end;
    if (state.bytes instanceof Window) state.bytes.drop(end);
  }
}

/**
 * @param {FileEntry} entry
 * @param {URL} url
 * @param {string} got
 * @param {string} expected
 */
function wrong(entry, url, got, expected) {
  return new EdgeInferError(`\`${entry.path}\` at ${url} has ${got}, the manifest says ${expected}`, "integrity_error", {
    hint: "the file was changed or cut short: copy or convert the bundle again",
    details: { path: entry.path, expected, got },
  });
}
