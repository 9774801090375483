/** A model on a server, over the Open Inference Protocol: what a step of a chain that names a server runs. */

import { InferError } from "../errors.js";
import { arrayOver, nbytesOf } from "../tensors.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */

/** The protocol's names of element types. @type {Record<string, any>} */
const DATATYPES = {
  bool: "BOOL", uint8: "UINT8", uint16: "UINT16", uint32: "UINT32", uint64: "UINT64", int8: "INT8", int16: "INT16", int32: "INT32", int64: "INT64",
  float16: "FP16", float32: "FP32", float64: "FP64",
};
const HEADER = "Inference-Header-Content-Length";

export class RemoteModel {
  /** @param {string} url `http://HOST/v2/models/NAME`. @param {string} [apiKey] */
  constructor(url, apiKey) {
    this.url = url.replace(/\/$/, "");
    /** @type {Record<string, string>} */
    this.headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
  }

  /** @param {{inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]}} specs Those of the bundle. @throws {InferError} The server's are others. */
  async check(specs) {
    const found = JSON.parse(new TextDecoder().decode((await this.#ask(this.url, {})).bytes));
    for (const what of /** @type {const} */ (["inputs", "outputs"])) {
      const mine = specs[what].map(({ name, dtype }) => `${name} ${DATATYPES[dtype]}`).sort();
      const other = (found[what] ?? []).map((/** @type {any} */ one) => `${one.name} ${one.datatype}`).sort();
      if (mine.join() !== other.join()) {
        throw new InferError(`the model at ${this.url} has the ${what} ${other.join(", ")}, the bundle ${mine.join(", ")}`, "manifest_error", { hint: "serve the same bundle there" });
      }
    }
  }

  /** @param {Record<string, Tensor>} feeds @returns {Promise<Record<string, Tensor>>} */
  async run(feeds) {
    const bodies = Object.values(feeds).map(({ data }) => new Uint8Array(/** @type {any} */ (data).buffer, /** @type {any} */ (data).byteOffset, /** @type {any} */ (data).byteLength));
    const inputs = Object.entries(feeds).map(([name, { dtype, shape }], i) => {
      if (!DATATYPES[dtype]) throw new InferError(`\`${name}\` is ${dtype}, which is not sent to a server`, "unsupported", { hint: "leave `server` out" });
      return { name, datatype: DATATYPES[dtype], shape, parameters: { binary_data_size: bodies[i].length } };
    });
    const head = new TextEncoder().encode(JSON.stringify({ inputs, parameters: { binary_data_output: true } }));
    const body = new Blob([head, .../** @type {any[]} */ (bodies)]);
    const headers = { "Content-Type": "application/octet-stream", [HEADER]: String(head.length) };
    const { bytes, length } = await this.#ask(`${this.url}/infer`, { method: "POST", body, headers });
    const document = JSON.parse(new TextDecoder().decode(bytes.subarray(0, length)));
    let at = length;
    /** @type {Record<string, Tensor>} */
    const found = {};
    for (const { name, datatype, shape, parameters } of document.outputs) {
      const dtype = Object.keys(DATATYPES).find((one) => DATATYPES[one] === datatype);
      const size = parameters?.binary_data_size;
      if (!dtype || size !== nbytesOf(/** @type {any} */ (dtype), shape) || at + size > bytes.length) {
        throw new InferError(`the server's output \`${name}\` cannot be read`, "execution_error", { hint: "use edge-infer's own server" });
      }
      found[name] = { data: arrayOver(/** @type {any} */ (dtype), bytes.slice(at, at + size)), dtype: /** @type {any} */ (dtype), shape };
      at += size;
    }
    return found;
  }

  /** @param {string} url @param {Omit<RequestInit, "headers"> & {headers?: Record<string, string>}} options @returns {Promise<{bytes: Uint8Array<ArrayBuffer>, length: number}>} */
  async #ask(url, { headers, ...options }) {
    let response;
    try {
      response = await fetch(url, { ...options, headers: { ...this.headers, ...headers } });
    } catch (cause) {
      throw new InferError(`${url} does not answer: ${cause instanceof Error ? cause.message : cause}`, "fetch_error", { hint: "edge-infer serve BUNDLE --allow-origin ORIGIN", cause });
    }
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (!response.ok) {
      let document;
      try {
        document = JSON.parse(new TextDecoder().decode(bytes));
      } catch {
        document = {};
      }
      throw new InferError(document.error ?? `${url} answers ${response.status}`, document.code ?? "serving_error", { hint: document.hint ?? "", details: { status: response.status } });
    }
    return { bytes, length: Number(response.headers.get(HEADER) ?? bytes.length) };
  }
}
