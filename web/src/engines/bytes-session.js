/**
 * A session on the GPU for a caller in another language or thread: tensors cross as one JSON description and their bytes.
 * It throws where the GPU fails; the caller has to choose another device.
 */

import { EdgeInferError } from "../errors.js";
import { arrayOver, bytesOver } from "../tensors.js";
import { WebGpuOpener } from "./ort-webgpu.js";

/** @typedef {import("../tensors.js").DType} DType */
/** @typedef {{name: string, dtype: DType, shape: number[], strings?: string[]}} Described */
/** @typedef {import("./shelf.js").Crossed} Crossed */

/** Tensors in, tensors out, as bytes. */
export class BytesSession {
  /**
   * @param {URL | string} root The URL under which `vendor/` lies.
   * @param {Uint8Array} model
   * @param {string} variant JSON: the variant's `id`, `precision` and `options`.
   * @returns {Promise<BytesSession>}
   * @throws {EdgeInferError} `backend_unavailable` or `unsupported_model`: no GPU runs it, with the reason.
   */
  static async open(root, model, variant) {
    const base = new URL("vendor/onnxruntime-web/", root);
    return new BytesSession(await WebGpuOpener.openOnly(base, model, JSON.parse(variant)));
  }

  /** @param {import("./ort-webgpu-session.js").WebGpuSession} session */
  constructor(session) {
    this.session = session;
  }

  /** @returns {string} The specs as JSON. */
  describe() {
    const { inputs, outputs } = this.session;
    return JSON.stringify({ inputs, outputs });
  }

  /**
   * @param {string} described JSON: `feeds`, each described, and the names of `outputs`.
   * @param {Uint8Array[]} buffers The bytes of each feed that is not of strings.
   * @returns {Promise<Crossed>} The outputs.
   * @throws {EdgeInferError} `input_error` or `execution_error`.
   */
  async run(described, buffers) {
    /** @type {{feeds: Described[], outputs: string[]}} */
    const { feeds, outputs } = JSON.parse(described);
    let next = 0;
    const values = feeds.map(({ name, dtype, shape, strings }) => {
      const data = strings ?? arrayOver(dtype, buffers[next++]);
      return [name, { data, dtype, shape }];
    });
    const results = await this.session.run(Object.fromEntries(values), { outputs });
    /** @type {Uint8Array[]} */
    const own = [];
    const descriptions = outputs.map((name) => {
      const { data, dtype, shape } = results[name];
      if (Array.isArray(data)) return { name, dtype, shape, strings: data };
      own.push(bytesOver(data));
      return { name, dtype, shape };
    });
    return { described: JSON.stringify(descriptions), buffers: own };
  }

  /** Give the memory back. */
  async close() {
    await this.session.close();
  }
}

/** @param {unknown} error @returns {import("../errors.js").ErrorDocument} */
export function describeError(error) {
  if (error instanceof EdgeInferError) return error.toJSON();
  return { ...EdgeInferError.describe(error), code: "execution_error" };
}
