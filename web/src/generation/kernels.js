/** The page's kernels of text generation: the compiled modules, and their memory. */

import { compileBytes } from "../engines/wasm-module.js";
import { EdgeInferError } from "../errors.js";
import { downloadBytes } from "../fetch/download.js";

/** @typedef {{[name: string]: (...values: number[]) => number}} Kernels */

/** The version of a program's words, as in `edge_infer.kernels.decoder_words`. */
const VERSION = 1;
const PAGE = 65536;
/** The most pages of a shared memory: of the module's own limit, and what browsers of 32 bits still reserve. */
const MOST_PAGES = [65535, 32768, 16384];

/** The memory of the kernels, taken from its start on. */
export class KernelMemory {
  /**
   * @param {WebAssembly.Exports} exports Of the kernels.
   * @param {WebAssembly.Memory} [shared] Their memory, where it was given to them.
   */
  constructor(exports, shared) {
    const { memory, __heap_base: base } = /** @type {{memory: WebAssembly.Memory, __heap_base: WebAssembly.Global}} */ (exports);
    /** @type {WebAssembly.Memory} */
    this.memory = shared ?? memory;
    /** Whether threads share it. What it gives is then no plain memory for some functions of a browser. */
    this.isShared = shared !== undefined;
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
      throw new EdgeInferError(`The page has no memory for the decoder: it needs ${Math.ceil(end / 2 ** 20)} MiB`, "out_of_memory", {
        hint: "take a smaller context, fewer slots or a smaller variant",
        cause,
      });
    }
  }
}

/**
 * @param {number} pages At first.
 * @returns {WebAssembly.Memory | undefined}
 */
export function sharedMemory(pages) {
  for (const maximum of MOST_PAGES) {
    try {
      return new WebAssembly.Memory({ initial: pages, maximum, shared: true });
    } catch {
      // A smaller one may be there.
    }
  }
  return undefined;
}

/** By address. @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();

/**
 * The kernels, compiled once for all decoders.
 *
 * @param {boolean} [forThreads] Whether they are those that threads share.
 * @returns {Promise<WebAssembly.Module>}
 * @throws {EdgeInferError} `backend_unavailable`: they cannot be fetched, or this browser cannot compile them.
 */
export function kernelModule(forThreads = false) {
  const url = forThreads ? new URL("./generation-threads.wasm", import.meta.url) : new URL("./generation.wasm", import.meta.url);
  let found = compiled.get(url.href);
  if (!found) {
    found = load(url).catch((cause) => {
      compiled.delete(url.href);
      throw new EdgeInferError(`The kernels of text generation do not load: ${cause}`, "backend_unavailable", { hint: `is ${url} there?`, cause });
    });
    compiled.set(url.href, found);
  }
  return found;
}

/** @param {URL} url */
async function load(url) {
  return compileBytes(await downloadBytes(url, { phase: "engine" }));
}

/**
 * @param {WebAssembly.Module} module
 * @returns {{kernels: Kernels, memory: KernelMemory}}
 */
export function start(module) {
  const isShared = WebAssembly.Module.imports(module).length > 0;
  const shared = isShared ? sharedMemory(1) : undefined;
  if (isShared && !shared) throw new EdgeInferError("The page has no shared memory for the decoder", "out_of_memory", { hint: "ask for one thread" });
  const { exports } = new WebAssembly.Instance(module, shared ? { env: { memory: shared } } : {});
  const kernels = /** @type {Kernels} */ (/** @type {unknown} */ (exports));
  const version = kernels.decoder_version?.();
  if (version !== VERSION) throw new EdgeInferError(`The kernels of text generation are of version ${version}, expected ${VERSION}`, "backend_unavailable");
  return { kernels, memory: new KernelMemory(exports, shared) };
}

/** @param {number} place */
export function align(place) {
  return Math.ceil(place / 64) * 64;
}
