/** Download files with progress, a limit for servers that stall, new tries after a cut, and errors that say which file is missing. */

import { EdgeInferError } from "../errors.js";
import { ended } from "./listed.js";

const STALL_MS = 30_000;
// By its name here: what bundles a page would look for it.
const NODE_FILES = "node:fs/promises";
/** How often a connection that was cut is tried again without a new piece in between, after growing pauses. */
export const RETRIES = 3;
export const PAUSE_MS = 250;
export const ENDED_EARLY = "the answer ended early";

/** The connection ended or stood still: worth another try. */
export class Cut extends Error {}

/** Aborts a download where the server sends nothing for too long, or where the caller gives up. */
export class StallTimer {
  /**
   * @param {AbortSignal} [signal] The caller's.
   * @param {number} [limitMs] How long a server may send nothing.
   */
  constructor(signal, limitMs = STALL_MS) {
    this.limitMs = limitMs;
    this.stalled = new AbortController();
    /** What the download is to listen to. */
    this.signal = signal ? AbortSignal.any([signal, this.stalled.signal]) : this.stalled.signal;
  }

  /**
   * Wait for an answer, or for the next piece of one.
   *
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   * @throws {Cut} Nothing came in time.
   */
  async wait(work) {
    const alarm = setTimeout(() => this.stalled.abort(), this.limitMs);
    try {
      return await work();
    } catch (cause) {
      if (this.stalled.signal.aborted) throw new Cut(`nothing came for ${this.limitMs / 1000} s`, { cause });
      throw cause;
    } finally {
      clearTimeout(alarm);
    }
  }

  /**
   * Wait for the next piece of a body.
   *
   * @param {Pick<ReadableStreamDefaultReader<Uint8Array>, "read">} reader
   * @returns {Promise<ReadableStreamReadResult<Uint8Array>>}
   * @throws {Cut} The connection was closed, or nothing came in time.
   */
  read(reader) {
    return this.wait(() =>
      reader.read().catch((cause) => {
        throw new Cut("the connection was closed", { cause });
      }),
    );
  }
}

/**
 * @typedef {object} Progress How far a load has come.
 * @property {"engine" | "model" | "python" | "package"} phase What is being loaded.
 * @property {string} file The file of this step.
 * @property {number} loaded The bytes of it that have arrived, unpacked.
 * @property {number} total The bytes that it has; 0 where the server does not say.
 * @property {boolean} [cached] Whether it came from the page's storage; told of models.
 */
/** @typedef {(progress: Progress) => void} OnProgress */

/**
 * Fetch a URL, and report every piece that arrives. Where its size is known, a body that is cut goes on over a new connection.
 *
 * @param {URL | string} url
 * @param {object} options
 * @param {Progress["phase"]} options.phase
 * @param {number} [options.total] The bytes that it has, where they are known.
 * @param {OnProgress} [options.onProgress]
 * @param {string} [options.hint] What to do where it is missing.
 * @param {Record<string, string>} [options.headers] What to send with the request.
 * @param {string} [options.type] The content type of the response that is returned.
 * @param {typeof fetch} [options.fetcher] What fetches.
 * @param {AbortSignal} [options.signal]
 * @param {number} [options.stallMs] How long a server may send nothing; 30 s unless given.
 * @param {(error: EdgeInferError) => void} [options.onCut] Told why the body ended early, which browsers do not pass on.
 * @returns {Promise<Response>} With a body that reports while it is read.
 * @throws {EdgeInferError} `fetch_error`: the server does not answer, or answers with an error; its body where it is cut.
 */
export async function download(url, { phase, total = 0, onProgress, hint = "", headers, type, fetcher = fetch, signal, stallMs, onCut }) {
  const place = new URL(url, globalThis.location?.href);
  if (place.protocol === "file:") return new Response(await readFile(place, hint));
  const asked = { phase, hint, headers, fetcher, signal, stallMs };
  /** @type {Body | undefined} */
  let body = await request(place, 0, asked);
  const { response } = body;
  const file = place.pathname.split("/").pop() ?? "";
  let loaded = 0;
  /** @returns {Promise<Uint8Array | undefined>} The next piece; undefined at the end. */
  const next = async () => {
    for (let failures = 0; ; ) {
      try {
        body ??= await request(place, loaded, asked);
        const { value, done } = await body.read();
        if (done && loaded < total && mayBeCut(body.response, body.at - body.from)) throw new Cut(ENDED_EARLY);
        if (done) return undefined;
        // A server without ranges sends it from its start.
        const piece = value.subarray(Math.max(0, loaded - body.at));
        body.at += value.byteLength;
        if (piece.byteLength > 0) return piece;
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof Cut) || total === 0 || failures === RETRIES) throw error;
        failures += 1;
        await body?.cancel().catch(() => {}); // a stream that was cut cannot be cancelled, and need not be
        body = undefined;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * failures));
      }
    }
  };
  // Pulled, so that a reader that takes its time is not taken for a server that stands still.
  const counted = new ReadableStream({
    async pull(controller) {
      try {
        const piece = await next();
        if (!piece) {
          ended(place, response);
          return controller.close();
        }
        loaded += piece.byteLength;
        onProgress?.({ phase, file, loaded, total: total || Math.max(loaded, announced(response)) });
        controller.enqueue(piece);
      } catch (cause) {
        signal?.throwIfAborted();
        if (!(cause instanceof Cut)) throw cause;
        const error = new EdgeInferError(`The download of ${place} was cut after ${loaded} bytes: ${cause.message}`, "fetch_error", {
          hint: "load it again",
          details: { url: place.href, loaded },
          cause,
        });
        onCut?.(error);
        throw error;
      }
    },
    cancel: (reason) => body?.cancel(reason),
  });
  return new Response(counted, { headers: { "content-type": type ?? response.headers.get("content-type") ?? "" } });
}

/**
 * @typedef {object} Body An answer that is read piece by piece.
 * @property {Response} response
 * @property {number} from The byte of the file that it begins with.
 * @property {number} at The byte of the file that the next piece begins with.
 * @property {() => Promise<ReadableStreamReadResult<Uint8Array>>} read
 * @property {(reason?: unknown) => Promise<void>} cancel
 */

/**
 * Ask for a file, or for what is missing of it.
 *
 * @param {URL} place
 * @param {number} from
 * @param {Pick<Parameters<typeof download>[1], "phase" | "hint" | "headers" | "fetcher" | "signal" | "stallMs">} options
 * @returns {Promise<Body>}
 * @throws {Cut} The rest of the file cannot be had now.
 * @throws {EdgeInferError} `fetch_error`: the server does not answer, or answers with an error.
 */
async function request(place, from, { phase, hint, headers, fetcher = fetch, signal, stallMs }) {
  const timer = new StallTimer(signal, stallMs);
  const asked = from > 0 ? { ...headers, Range: `bytes=${from}-` } : headers;
  let response;
  try {
    response = await timer.wait(() => fetcher(place, { credentials: "same-origin", headers: asked, signal: timer.signal }));
  } catch (cause) {
    signal?.throwIfAborted();
    if (from > 0) throw cause instanceof Cut ? cause : new Cut("the server cannot be reached", { cause });
    const why = cause instanceof Cut ? `: ${cause.message}` : "";
    throw new EdgeInferError(`${place} cannot be reached${why}`, "fetch_error", {
      hint: "is the server running? `edge-infer serve`",
      details: { url: place.href },
      cause,
    });
  }
  const { status, body } = response;
  if (!response.ok || !body) {
    if (from > 0) throw new Cut(`the server answers with status ${status}`);
    const details = { url: place.href, status };
    const todo = status === 401 && phase === "model" ? "load(url, { apiKey: KEY })" : hint;
    throw new EdgeInferError(`${place} answers with status ${status}`, "fetch_error", { hint: todo, details });
  }
  // A server of another origin may keep to itself which range it gives.
  const begins = status === 206 ? Number(/^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "")?.[1] ?? from) : 0;
  if (begins > from) throw new Cut(`the server answers from byte ${begins} on`);
  const reader = body.getReader();
  return { response, from: begins, at: begins, read: () => timer.read(reader), cancel: (reason) => reader.cancel(reason) };
}

/**
 * @param {Response} response
 * @param {number} bytes What was read of it, unpacked, until it ended without an error.
 * @returns {boolean} Whether more was meant to follow: Firefox tells of no cut where a body is compressed, or framed by its length.
 */
export function mayBeCut(response, bytes) {
  return response.headers.has("content-encoding") || Number(response.headers.get("content-length") ?? -1) !== bytes;
}

/**
 * Download the bytes of a URL.
 *
 * @param {URL | string} url
 * @param {Parameters<typeof download>[1]} options
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {EdgeInferError} `fetch_error`, also where it is cut.
 */
export async function downloadBytes(url, options) {
  /** @type {EdgeInferError | undefined} */
  let cut;
  const response = await download(url, { ...options, onCut: (error) => void (cut = error) });
  try {
    return new Uint8Array(await response.arrayBuffer());
  } catch (thrown) {
    options.signal?.throwIfAborted();
    throw cut ?? thrown;
  }
}

/**
 * @param {Response} response
 * @returns {number} Its length as the server announces it; 0 where it is compressed, and so of another length here.
 */
function announced(response) {
  return response.headers.has("content-encoding") ? 0 : Number(response.headers.get("content-length") ?? 0);
}

/**
 * @param {URL} url
 * @param {string} hint What to do where it is missing.
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {EdgeInferError} `fetch_error`: it is missing, as a server says it by its status 404.
 */
async function readFile(url, hint) {
  const fs = await import(/* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ NODE_FILES);
  try {
    return new Uint8Array(await fs.readFile(url));
  } catch (cause) {
    if (/** @type {any} */ (cause).code !== "ENOENT") throw cause;
    throw new EdgeInferError(`There is no file ${url}`, "fetch_error", { hint, details: { url: url.href, status: 404 }, cause });
  }
}
