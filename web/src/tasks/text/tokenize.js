/** The step `text.tokenize`: a text, or a pair of texts, to the numbers of its tokens. */

import { EdgeInferError } from "../../errors.js";
import { packed } from "../values.js";
import { didYouMean, listed } from "../words.js";
import { pad } from "./encoding.js";
import { Tokenizer } from "./tokenizer.js";
import { Window, windows } from "./windows.js";

/** @typedef {"ids" | "mask" | "types"} What */
/**
 * @typedef {object} Parameters
 * @property {string} file
 * @property {number | null} max_length
 * @property {Record<string, string>} tensors Where the ids, the attention mask and the type ids go: names of inputs.
 * @property {number} pad_id
 * @property {number | null} pad_to The length that each text is filled up to; null for the longest of a batch.
 * @property {number | null} doc_stride How many tokens of a pair's second text a window has again; null for no windows.
 * @property {"longest_first" | "only_first" | "only_second"} truncate
 * @property {boolean} offsets
 * @property {string | null} prefix What is put before each text, such as `query: `.
 */

const TENSORS = ["ids", "mask", "types"];

/**
 * It gives the tensors [tokens] that the model takes: one whose input the model lacks is left out.
 *
 * @param {Parameters} parameters
 * @param {import("../place.js").Place} place
 * @returns {Promise<import("../item.js").Apply>}
 * @throws {EdgeInferError} `manifest_error`: the model takes none of the tensors, or the bundle has no such file. `bundle_error`: the
 *   file is not a `tokenizer.json`.
 */
export async function prepare({ file, max_length, tensors, pad_id, pad_to, doc_stride, truncate, offsets, prefix }, place) {
  if (prefix !== null && offsets) {
    const hint = 'leave "offsets" out';
    throw new EdgeInferError("pipeline: `text.tokenize` tells no places behind a `prefix`", "manifest_error", { hint });
  }
  if (doc_stride !== null && !offsets) {
    throw new EdgeInferError("pipeline: `text.tokenize` has a `doc_stride` without offsets", "manifest_error", { hint: '"offsets": true' });
  }
  const unknown = Object.keys(tensors).find((what) => !TENSORS.includes(what));
  if (unknown !== undefined) {
    throw new EdgeInferError(`pipeline: \`text.tokenize\` makes no \`${unknown}\`, expected ${listed(TENSORS)}`, "manifest_error", {
      hint: didYouMean(unknown, TENSORS) || `leave "${unknown}" out of "tensors"`,
      details: { field: unknown },
    });
  }
  const names = /** @type {[What, string][]} */ (Object.entries(tensors).filter(([, name]) => place.inputs.has(name)));
  if (!names.some(([what]) => what === "ids")) {
    throw new EdgeInferError(`pipeline: the model has no input \`${tensors.ids}\` for the tokens`, "manifest_error", {
      hint: `"tensors": {"ids": "${place.inputs.keys().next().value ?? "NAME"}"}`,
    });
  }
  const tokenizer = new Tokenizer(await place.read(file));
  const padding = pad_to === null ? null : { length: pad_to, padId: pad_id };
  /** @param {any} value @param {import("../item.js").Item} item @returns {import("./encoding.js").Encoding} */
  const encoded = (value, item) => {
    if (value instanceof Window) {
      [item.text, item.pair] = [value.text, value.pair];
      return value.encoding;
    }
    [item.text, item.pair] = textsOf(value);
    const length = item.argument("max_length", max_length) || pad_to;
    const truncation = length === null ? null : { maxLength: length, strategy: truncate };
    return tokenizer.encode((prefix ?? "") + item.text, item.pair, { truncation, padding, offsets });
  };
  /** @type {import("../item.js").Apply} */
  const apply = (value, item) => {
    const encoding = encoded(value, item);
    item.encoding = encoding;
    item.decode = (ids) => tokenizer.decode(ids);
    item.tokenOf = (number) => tokenizer.idToToken(number) ?? "";
    const made = { ids: encoding.ids, mask: encoding.attentionMask, types: encoding.typeIds };
    return Object.fromEntries(
      names.map(([what, name]) => {
        const spec = /** @type {import("../../tensors.js").TensorSpec} */ (place.inputs.get(name));
        return [name, packed(made[what], spec.dtype, [made[what].length])];
      }),
    );
  };
  /** @param {any} value @param {Record<string, any>} args The runs that a raw input takes: windows where there is a `doc_stride`, else itself. */
  const cut = (value, args) => {
    const [stride, length] = [args.doc_stride ?? doc_stride, (args.max_length ?? max_length) || pad_to];
    if (stride === null || length === null) return [value];
    if (!Number.isInteger(stride) || stride < 0) {
      throw new EdgeInferError(`\`doc_stride\` is ${stride}, expected a whole number from 0 on`, "input_error", { hint: "doc_stride: 128" });
    }
    const [text, pair] = textsOf(value);
    if (pair === null) return [value];
    const whole = tokenizer.encode(text, pair, { truncation: null, padding: null, offsets: true });
    const found = windows(whole, length, stride);
    if (padding) pad(found, padding);
    return found.map((encoding) => new Window(text, pair, encoding));
  };
  return Object.assign(apply, { windows: cut });
}

/** @param {any} value @returns {[string, string | null]} A text and the second one of a pair; null for a text alone. */
function textsOf(value) {
  if (typeof value === "string") return [value, null];
  if (Array.isArray(value) && value.length === 2 && value.every((one) => typeof one === "string")) return [value[0], value[1]];
  if (typeof value?.text === "string") return textsOf(value.text_pair === undefined || value.text_pair === null ? value.text : [value.text, value.text_pair]);
  throw new EdgeInferError(`a ${value?.constructor?.name ?? typeof value} is not a text`, "input_error", {
    hint: 'give a text, or a pair: {text: "...", text_pair: "..."}',
  });
}
