/** The step `text.tokenize`: a text, or a pair of texts, to the numbers of its tokens. */

import { InferError } from "../../errors.js";
import { packed } from "../values.js";
import { listed } from "../words.js";
import { Tokenizer } from "./tokenizer.js";

/** @typedef {"ids" | "mask" | "types"} What */
/**
 * @typedef {object} Parameters
 * @property {string} file
 * @property {number | null} max_length
 * @property {Record<string, string>} tensors Where the ids, the attention mask and the type ids go: names of inputs.
 * @property {number} pad_id
 * @property {number | null} pad_to The length that each text is filled up to; null for the longest of a batch.
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
 * @throws {InferError} `manifest_error`: the model takes none of the tensors, or the bundle has no such file. `bundle_error`: the
 *   file is not a `tokenizer.json`.
 */
export async function prepare({ file, max_length, tensors, pad_id, pad_to, truncate, offsets, prefix }, place) {
  if (prefix !== null && offsets) {
    const hint = 'leave "offsets" out';
    throw new InferError("pipeline: `text.tokenize` tells no places behind a `prefix`", "manifest_error", { hint });
  }
  const unknown = Object.keys(tensors).find((what) => !TENSORS.includes(what));
  if (unknown !== undefined) {
    throw new InferError(`pipeline: \`text.tokenize\` makes no \`${unknown}\`, expected ${listed(TENSORS)}`, "manifest_error", { details: { field: unknown } });
  }
  const names = /** @type {[What, string][]} */ (Object.entries(tensors).filter(([, name]) => place.inputs.has(name)));
  if (!names.some(([what]) => what === "ids")) {
    throw new InferError(`pipeline: the model has no input \`${tensors.ids}\` for the tokens`, "manifest_error", {
      hint: `"tensors": {"ids": "${place.inputs.keys().next().value ?? "NAME"}"}`,
    });
  }
  const tokenizer = new Tokenizer(await place.read(file));
  const padding = pad_to === null ? null : { length: pad_to, padId: pad_id };
  return (value, item) => {
    const [text, pair] = textsOf(value);
    [item.text, item.pair] = [text, pair];
    const length = item.argument("max_length", max_length) || pad_to;
    const truncation = length === null ? null : { maxLength: length, strategy: truncate };
    const encoding = tokenizer.encode((prefix ?? "") + text, pair, { truncation, padding, offsets });
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
}

/** @param {any} value @returns {[string, string | null]} A text and the second one of a pair; null for a text alone. */
function textsOf(value) {
  if (typeof value === "string") return [value, null];
  if (Array.isArray(value) && value.length === 2 && value.every((one) => typeof one === "string")) return [value[0], value[1]];
  if (typeof value?.text === "string") return textsOf(value.text_pair === undefined || value.text_pair === null ? value.text : [value.text, value.text_pair]);
  throw new InferError(`a ${value?.constructor?.name ?? typeof value} is not a text`, "input_error", {
    hint: 'give a text, or a pair: {text: "...", text_pair: "..."}',
  });
}
