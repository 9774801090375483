/** What a bundle says about the generation of text: the field `generate` of its manifest. */

import { EdgeInferError } from "../errors.js";

/** @typedef {import("../bundle/manifest.js").Manifest} Manifest */
/** @typedef {import("../bundle/manifest.js").Variant} Variant */
/**
 * @typedef {object} GenerateDefinition The field, checked (docs/concepts/bundle.md).
 * @property {string} architecture The family's name, for people.
 * @property {number} context The longest sequence that the model was made for.
 * @property {number} vocabSize Tokens of the model.
 * @property {string} tokenizer The path of `tokenizer.json` in the bundle.
 * @property {string | null} chatTemplate The path of the template of messages; null for a model that takes prompts alone.
 * @property {number | null} bos The token that begins a text; null for none.
 * @property {boolean} addBos Whether a prompt begins with it.
 * @property {number[]} eos The tokens that end an answer.
 * @property {Record<string, string>} specialTokens Texts that templates name, such as `eos_token`.
 * @property {Record<string, any>} defaults Options that the model's makers advise.
 */

const KIND = "decoder/1";
const SMALLEST_FIRST = ["int4", "mixed", "int8", "fp16", "fp32"];
const REQUIRED = Symbol("required");

/**
 * @param {Manifest} manifest
 * @returns {GenerateDefinition}
 * @throws {EdgeInferError} `unsupported`: it says nothing, or is of another kind. `manifest_error`: a field is missing or of another type.
 */
export function definitionOf({ name, generate: entry }) {
  if (entry === undefined) {
    throw new EdgeInferError(`\`${name}\` generates no text: its manifest has no \`generate\``, "unsupported", { hint: "load(url)" });
  }
  if (entry.kind !== KIND) {
    throw new EdgeInferError(`\`${name}\` generates by \`${entry.kind}\`, this version knows \`${KIND}\``, "unsupported", { hint: "update edge-infer" });
  }
  const eos = entry.eos ?? [];
  const ends = Array.isArray(eos) ? eos : [eos];
  if (!ends.every(Number.isInteger)) throw new EdgeInferError("manifest: `generate.eos` must be a list of whole numbers", "manifest_error");
  return {
    architecture: field(entry, "architecture", "string", ""),
    context: field(entry, "context", "whole"),
    vocabSize: field(entry, "vocab_size", "whole"),
    tokenizer: field(entry, "tokenizer", "string"),
    chatTemplate: field(entry, "chat_template", "string", null),
    bos: field(entry, "bos", "whole", null),
    addBos: field(entry, "add_bos", "boolean", false),
    eos: ends,
    specialTokens: field(entry, "special_tokens", "object", {}),
    defaults: field(entry, "defaults", "object", {}),
  };
}

/**
 * @param {Record<string, any>} entry
 * @param {string} name
 * @param {"string" | "whole" | "boolean" | "object"} kind
 * @param {any} [missing]
 */
function field(entry, name, kind, missing = REQUIRED) {
  const value = entry[name];
  if ((value === undefined || value === null) && missing !== REQUIRED) return missing;
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  const fits = kind === "whole" ? Number.isInteger(value) : kind === "object" ? isObject : typeof value === kind;
  if (fits) return value;
  throw new EdgeInferError(`manifest: \`generate.${name}\` is ${JSON.stringify(value)}, expected ${kind}`, "manifest_error");
}

/**
 * @param {Manifest} manifest
 * @param {string} [wanted] The id of the variant.
 * @returns {Variant} It; the smallest weights unless given.
 * @throws {EdgeInferError} `unsupported`: it generates no text. `input_error`: there is none of this id.
 */
export function decoderVariant({ name, variants }, wanted) {
  if (wanted !== undefined) {
    const chosen = variants.find(({ id }) => id === wanted);
    if (!chosen) {
      const known = variants.map(({ id }) => `\`${id}\``).join(", ");
      throw new EdgeInferError(`Bundle \`${name}\` has no variant \`${wanted}\`; choose from ${known}`, "input_error", { hint: `ask for \`${variants[0].id}\`` });
    }
    if (chosen.format === "decoder") return chosen;
    throw new EdgeInferError(`variant \`${wanted}\` is ${chosen.format}, which generates no text`, "unsupported", { hint: "load(url)" });
  }
  const known = variants.filter(({ format }) => format === "decoder");
  if (known.length === 0) throw new EdgeInferError(`\`${name}\` has no variant that generates text`, "unsupported", { hint: "load(url)" });
  const rank = (/** @type {Variant} */ { precision }) => SMALLEST_FIRST.indexOf(precision);
  return known.toSorted((one, other) => rank(one) - rank(other))[0];
}
