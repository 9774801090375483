/**
 * A model on a server, over the Open Inference Protocol: for chains, and for sessions with a server to fall back to.
 *
 * The rules are those of `edge_infer.backends.remote.http`: an answer may take a minute in all, a server that is full is asked
 * again when it says, and errors of ours arrive with the code that they left with.
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, checkInputs, nbytesOf, sizeOf } from "../tensors.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {{bytes: Uint8Array<ArrayBuffer>, length: number}} Answer Of the bytes, so many are JSON. */
/** @typedef {{inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]}} Specs */

/** The protocol's names of element types. @type {Record<DType, string>} */
const DATATYPES = {
  bool: "BOOL", uint8: "UINT8", uint16: "UINT16", uint32: "UINT32", uint64: "UINT64", int8: "INT8", int16: "INT16", int32: "INT32", int64: "INT64",
  float16: "FP16", float32: "FP32", float64: "FP64", bfloat16: "BF16", string: "BYTES", int4: "INT4", uint4: "UINT4",
};
const DTYPES = new Map(Object.entries(DATATYPES).map(([dtype, datatype]) => [datatype, /** @type {DType} */ (dtype)]));
const HEADER = "Inference-Header-Content-Length";

/** How long an answer may take in all, waits included, and how often a full server is asked. */
const TIMEOUT_MS = 60_000;
const ATTEMPTS = 5;
const MAX_WAIT_MS = 30_000;
/** What JSON may take, and the tensors of outputs whose shapes are free. */
const MAX_JSON_BYTES = 2 ** 20;
const MAX_ANSWER_BYTES = 2 ** 29;
/** Come back later: over a share, or full. */
const LATER = [429, 503];
const NOT_V2 = { hint: "is it a v2 server?" };

/** @typedef {{timeoutMs?: number, pause?: (ms: number, signal: AbortSignal) => Promise<void>}} Waiting For tests: how long an answer may take, and what waits. */

export class RemoteModel {
  /** @type {Specs | undefined} */
  #specs;

  /** @param {string} url `http://HOST/v2/models/NAME`. @param {string} [apiKey] @param {Waiting} [waiting] */
  constructor(url, apiKey, { timeoutMs = TIMEOUT_MS, pause = pauseFor } = {}) {
    this.url = url.replace(/\/$/, "");
    /** @type {Record<string, string>} */
    this.headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    this.timeoutMs = timeoutMs;
    this.pause = pause;
  }

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<Specs & {name: string, version: string}>} What the server says of the model.
   * @throws {EdgeInferError} `bundle_error`: it describes no model; `fetch_error`: it cannot be reached.
   */
  async describe(signal) {
    const document = parse((await this.#ask(this.url, {}, MAX_JSON_BYTES, signal)).bytes, this.url);
    try {
      const [inputs, outputs] = [document.inputs, document.outputs].map((entries) => entries.map(specOf));
      this.#specs = { inputs, outputs };
      return { name: String(document.name), version: String(document.versions?.at(-1) ?? "1"), inputs, outputs };
    } catch (cause) {
      throw new EdgeInferError(`${this.url} does not describe a model`, "bundle_error", { ...NOT_V2, cause });
    }
  }

  /**
   * @param {Specs} specs Those of the bundle.
   * @param {AbortSignal} [signal]
   * @throws {EdgeInferError} `bundle_error`: the server's are others.
   */
  async check(specs, signal) {
    const found = await this.describe(signal);
    for (const what of /** @type {const} */ (["inputs", "outputs"])) {
      const [mine, other] = [specs, found].map((one) => one[what].map(({ name, dtype }) => `${name} ${dtype}`).sort().join(", "));
      if (mine !== other) {
        throw new EdgeInferError(`${this.url} is another model: it has the ${what} ${other}, this one ${mine}`, "bundle_error", { hint: "name the same model there" });
      }
    }
    this.#specs = specs;
  }

  /**
   * @param {Record<string, Tensor>} feeds
   * @param {{outputs?: readonly string[], signal?: AbortSignal}} [options] The outputs to compute; all unless given.
   * @returns {Promise<Record<string, Tensor>>}
   * @throws {EdgeInferError} The server's error, or `execution_error`: its answer cannot be read; the signal's reason where it is aborted.
   */
  async run(feeds, { outputs, signal } = {}) {
    const specs = this.#specs ?? (await this.describe(signal));
    const wanted = outputs ?? specs.outputs.map(({ name }) => name);
    const bodies = Object.values(feeds).map(({ data, dtype }) => (dtype === "string" ? textBytes(/** @type {string[]} */ (data)) : viewOf(/** @type {any} */ (data))));
    const inputs = Object.entries(feeds).map(([name, { dtype, shape }], i) => ({ name, datatype: DATATYPES[dtype], shape, parameters: { binary_data_size: bodies[i].length } }));
    const request = { inputs, outputs: wanted.map((name) => ({ name, parameters: { binary_data: true } })) };
    const head = new TextEncoder().encode(JSON.stringify(request));
    const headers = { "Content-Type": "application/octet-stream", [HEADER]: String(head.length) };
    const most = MAX_JSON_BYTES + bytesOfOutputs(specs.outputs.filter(({ name }) => wanted.includes(name)));
    const answer = await this.#ask(`${this.url}/infer`, { method: "POST", body: new Blob([head, .../** @type {any[]} */ (bodies)]), headers }, most, signal);
    const results = this.#read(answer);
    const missing = wanted.find((name) => !Object.hasOwn(results, name));
    if (missing !== undefined) throw new EdgeInferError(`${this.url} left out the output \`${missing}\``, "execution_error", { hint: "ask the server's operator" });
    return Object.fromEntries(wanted.map((name) => [name, results[name]]));
  }

  /** @param {Answer} answer @returns {Record<string, Tensor>} */
  #read({ bytes, length }) {
    const wrong = (/** @type {string} */ said) => new EdgeInferError(`${this.url} answered in a form that is not v2: ${said}`, "execution_error", NOT_V2);
    const { outputs } = parse(bytes.subarray(0, length), this.url);
    if (!Array.isArray(outputs)) throw wrong("it has no `outputs`");
    let at = length;
    /** @type {Record<string, Tensor>} */
    const found = {};
    for (const entry of outputs) {
      const { name, datatype, shape, parameters } = entry ?? {};
      const dtype = DTYPES.get(datatype);
      if (typeof name !== "string" || !dtype) throw wrong(`an output has the datatype ${JSON.stringify(datatype)}`);
      if (!Array.isArray(shape) || !shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) throw wrong(`\`${name}\` has the shape ${JSON.stringify(shape)}`);
      const size = parameters?.binary_data_size;
      if (!Number.isSafeInteger(size) || size < 0 || at + size > bytes.length) throw wrong(`\`${name}\` has ${JSON.stringify(size)} bytes of the ${bytes.length - at} that are left`);
      const part = bytes.slice(at, at + size);
      at += size;
      const data = dtype === "string" ? textsOf(part, wrong) : size === nbytesOf(dtype, shape) ? arrayOver(dtype, part) : undefined;
      if (!data || (dtype === "string" && data.length !== sizeOf(shape))) throw wrong(`\`${name}\` has ${size} bytes, which its shape (${shape}) does not take`);
      found[name] = { data, dtype, shape };
    }
    return found;
  }

  /**
   * Ask, and again where the server is full; inference may be repeated without harm.
   *
   * @param {string} url
   * @param {Omit<RequestInit, "headers"> & {headers?: Record<string, string>}} options
   * @param {number} maxBytes What an answer may take.
   * @param {AbortSignal} [signal]
   * @returns {Promise<Answer>}
   */
  async #ask(url, { headers, ...options }, maxBytes, signal) {
    signal?.throwIfAborted();
    const until = performance.now() + this.timeoutMs;
    const control = new AbortController();
    const late = new EdgeInferError(`${url} has not answered within ${this.timeoutMs / 1000} s`, "fetch_error", { hint: "is it overloaded? `edge-infer doctor URL`", details: { url } });
    const timer = setTimeout(() => control.abort(late), this.timeoutMs);
    const giveUp = () => control.abort(signal?.reason);
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      for (let attempt = 1; ; attempt++) {
        const response = await fetch(url, { ...options, headers: { ...this.headers, ...headers }, signal: control.signal });
        if (response.ok) {
          const bytes = await readBounded(response, maxBytes, url, control);
          const length = response.headers.get(HEADER) ?? String(bytes.length);
          if (!/^\d+$/.test(length) || Number(length) > bytes.length) throw new EdgeInferError(`${url} says that ${length} of ${bytes.length} bytes are JSON`, "execution_error", NOT_V2);
          return { bytes, length: Number(length) };
        }
        const waitMs = retryAfterMs(response.headers.get("Retry-After"));
        if (!LATER.includes(response.status) || attempt === ATTEMPTS || performance.now() + waitMs > until) throw await errorOf(response, url, control);
        await response.body?.cancel();
        await this.pause(waitMs, control.signal);
      }
    } catch (cause) {
      if (control.signal.aborted && control.signal.reason !== undefined) throw control.signal.reason;
      if (cause instanceof EdgeInferError) throw cause;
      throw new EdgeInferError(`${url} cannot be reached: ${cause instanceof Error ? cause.message : cause}`, "fetch_error", {
        hint: "is the server running, and does it let this page ask? `edge-infer serve BUNDLE --allow-origin ORIGIN`",
        details: { url },
        cause,
      });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
    }
  }
}

/**
 * @param {readonly TensorSpec[]} specs
 * @param {Record<string, unknown>} inputs What `Session.run` takes.
 * @returns {Record<string, Tensor>}
 * @throws {EdgeInferError} `input_error`: one does not fit.
 */
export function tensorsOf(specs, inputs) {
  const checked = checkInputs(specs, inputs);
  return Object.fromEntries(
    specs.map(({ name, dtype }, i) => {
      const { bytes, strings, shape } = /** @type {import("../tensors.js").Checked} */ (checked[i]);
      return [name, { data: strings ?? /** @type {Uint8Array} */ (bytes), dtype, shape }];
    }),
  );
}

/** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
function pauseFor(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** @param {string | null} said Seconds. @returns {number} */
function retryAfterMs(said) {
  const seconds = Number(said ?? 1);
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds * 1000, 0), MAX_WAIT_MS) : 1000;
}

/**
 * @param {Response} response
 * @param {number} maxBytes
 * @param {string} url
 * @param {AbortController} control Ends the answer where it is too large.
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function readBounded(response, maxBytes, url, control) {
  const refuse = (/** @type {number} */ size) => {
    const error = new EdgeInferError(`The answer of ${url} has ${size} bytes or more, at most ${maxBytes} are expected`, "execution_error", NOT_V2);
    control.abort(error);
    return error;
  };
  const said = Number(response.headers.get("Content-Length") ?? 0);
  if (said > maxBytes) throw refuse(said);
  /** @type {Uint8Array[]} */
  const chunks = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let read = await reader?.read(); reader && read && !read.done; read = await reader.read()) {
    size += read.value.length;
    if (size > maxBytes) throw refuse(size);
    chunks.push(read.value);
  }
  const bytes = new Uint8Array(size);
  chunks.reduce((at, chunk) => (bytes.set(chunk, at), at + chunk.length), 0);
  return bytes;
}

/** The codes of errors of other servers, by their status. @type {Record<number, string>} */
const CODES = { 400: "execution_error", 401: "unauthorized", 429: "queue_full", 503: "queue_full" };

/** @param {Response} response @param {string} url @param {AbortController} control @returns {Promise<EdgeInferError>} */
async function errorOf(response, url, control) {
  const { status } = response;
  let document;
  try {
    document = JSON.parse(new TextDecoder().decode(await readBounded(response, MAX_JSON_BYTES, url, control)));
  } catch (cause) {
    if (cause instanceof EdgeInferError) return cause;
  }
  const text = typeof document?.error === "string" ? document.error : `status ${status}`;
  if (typeof document?.code === "string") {
    const details = document.details && typeof document.details === "object" ? document.details : {};
    return new EdgeInferError(text, document.code, { hint: String(document.hint ?? ""), details: { ...details, status } });
  }
  return new EdgeInferError(`${url} answers: ${text}`, CODES[status] ?? "serving_error", { details: { status } });
}

/** @param {Uint8Array} bytes @param {string} url @returns {Record<string, any>} */
function parse(bytes, url) {
  let document;
  try {
    document = JSON.parse(new TextDecoder().decode(bytes));
  } catch (cause) {
    throw new EdgeInferError(`${url} answered with something that is not JSON`, "execution_error", { ...NOT_V2, cause });
  }
  if (document === null || typeof document !== "object" || Array.isArray(document)) {
    throw new EdgeInferError(`${url} answered with JSON that is not an object`, "execution_error", NOT_V2);
  }
  return document;
}

/** @param {{name: unknown, datatype: string, shape: number[]}} entry @returns {TensorSpec} As Python names the free dimensions. */
function specOf({ name, datatype, shape }) {
  const dtype = DTYPES.get(datatype);
  if (!dtype) throw new TypeError(`the datatype ${datatype} is not known`);
  return { name: String(name), dtype, shape: shape.map((dim, axis) => (dim >= 0 ? dim : axis === 0 ? "batch" : `${name}_${axis}`)) };
}

/** @param {readonly TensorSpec[]} specs @returns {number} What they take at most. */
function bytesOfOutputs(specs) {
  const isFixed = specs.every(({ dtype, shape }) => dtype !== "string" && shape.every((dim) => typeof dim === "number"));
  return isFixed ? specs.reduce((sum, { dtype, shape }) => sum + nbytesOf(dtype, /** @type {number[]} */ (shape)), 0) : MAX_ANSWER_BYTES;
}

/** @param {ArrayBufferView} data */
function viewOf({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** @param {string[]} texts @returns {Uint8Array} Each as 4 bytes of its length, little-endian, and its UTF-8. */
function textBytes(texts) {
  const encoded = texts.map((text) => new TextEncoder().encode(text));
  const bytes = new Uint8Array(encoded.reduce((sum, { length }) => sum + 4 + length, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const text of encoded) {
    view.setUint32(at, text.length, true);
    bytes.set(text, at + 4);
    at += 4 + text.length;
  }
  return bytes;
}

/** @param {Uint8Array} bytes @param {(said: string) => EdgeInferError} wrong @returns {string[]} */
function textsOf(bytes, wrong) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [texts, decoder] = [/** @type {string[]} */ ([]), new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 4 <= bytes.length ? at + 4 + view.getUint32(at, true) : Infinity;
    if (end > bytes.length) throw wrong(`text ${texts.length} runs over the end`);
    try {
      texts.push(decoder.decode(bytes.subarray(at + 4, end)));
    } catch {
      throw wrong(`text ${texts.length} is not UTF-8`);
    }
    at = end;
  }
  return texts;
}
