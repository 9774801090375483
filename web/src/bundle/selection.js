/** Which variant of a bundle a page takes. The rules are those of `edge_infer.runtime.selection`. */

import { EdgeInferError } from "../errors.js";

/** @typedef {import("./manifest.js").Manifest} Manifest */
/** @typedef {import("./manifest.js").Variant} Variant */
/** @typedef {import("./measured.js").EngineName} EngineName */
/** @typedef {import("./measured.js").Measurement & {why: string}} Measured */
/**
 * @typedef {object} Choosing
 * @property {string} [variant] The id of the variant to take; chosen unless given.
 * @property {EngineName} [backend] The engine that must read the variant; by the formats unless given.
 * @property {string[]} [formats] Which format to take first; a compiled one, then ONNX unless given.
 * @property {string[]} [precisions] Which precision to take first; int8 unless given.
 */

// Which precision to take first on wasm, and what a variant must be made for.
const PRECISIONS = ["int8", "mixed", "fp32", "fp16", "int4", ""];
const TARGETS = ["any", "web"];
/** What each engine reads, the preferred first: a compiled model needs no engine to be fetched. @type {Record<EngineName, string>} */
const FORMATS = { compiled: "compiled", ort: "onnx", litert: "tflite" };

/**
 * Choose a variant: the one asked for, the fastest of those measured, or the first by the rules that is not known to be wrong.
 *
 * @param {Manifest} manifest
 * @param {{best?: Measured, wrong: string[]} | undefined} measured What a measurement says.
 * @param {Choosing} options
 * @returns {{chosen: Variant, found: Measured | undefined, why: string}} What was measured of it, and what decided.
 * @throws {EdgeInferError} `unsupported_model` or `input_error`: there is none.
 */
export function decide(manifest, { best, wrong } = { wrong: [] }, { variant, backend, formats, precisions }) {
  const found = manifest.variants.some(({ id }) => id === best?.variant) ? best : undefined;
  const left = variant === undefined ? withoutWrong(manifest, backend, wrong) : manifest;
  const chosen = found ? chooseVariant(manifest, found.variant, found.backend) : chooseVariant(left, variant, backend, { formats, precisions });
  const byRule = wrong.includes(chosen.id)
    ? "last: its golden outputs do not come here"
    : `rule: ${chosen.format === "compiled" ? "it needs no engine; " : ""}of ${chosen.format} variants ${chosen.precision} comes first here`;
  const rule = variant !== undefined ? "asked for" : byRule;
  const why = found ? (variant === undefined ? found.why : `asked for; ${found.why}`) : rule;
  return { chosen, found, why };
}

/**
 * List the variants that a page can run: those made for pages or for all, where there are any.
 *
 * @param {Manifest} manifest
 * @param {string} [id] The only one to consider.
 * @param {EngineName} [backend] The engine that must read it.
 * @returns {Variant[]}
 * @throws {EdgeInferError} `unsupported_model`: there is none.
 */
export function runnable(manifest, id, backend) {
  const one = chooseVariant(manifest, id, backend);
  if (id !== undefined) return [one];
  const formats = backend === undefined ? Object.values(FORMATS) : [FORMATS[backend]];
  const found = manifest.variants.filter((variant) => formats.includes(variant.format) && !variant.external?.length && isForPages(variant));
  return found.length > 0 ? found : [one];
}

/**
 * Leave variants out that are known to give wrong answers here, where others are left.
 *
 * @param {Manifest} manifest
 * @param {EngineName | undefined} backend
 * @param {string[]} wrong
 * @returns {Manifest}
 */
function withoutWrong(manifest, backend, wrong) {
  if (wrong.length === 0) return manifest;
  const variants = runnable(manifest, undefined, backend).filter(({ id }) => !wrong.includes(id));
  return variants.length > 0 ? { ...manifest, variants } : manifest;
}

/**
 * Choose the variant for a page: made for pages or for all, of the preferred format and precision.
 *
 * @param {Manifest} manifest
 * @param {string} [id] The only one to consider.
 * @param {EngineName} [backend] The engine that must read it.
 * @param {Pick<Choosing, "formats" | "precisions">} [preferred] Which format and precision to take first.
 * @returns {Variant}
 * @throws {EdgeInferError} `unsupported_model`: the page can run none of them; `input_error`: not by what was asked for;
 *   `unsupported`: it is a chain.
 */
export function chooseVariant(manifest, id, backend, { formats = Object.values(FORMATS), precisions = PRECISIONS } = {}) {
  if (manifest.variants.length === 0) {
    throw new EdgeInferError(`\`${manifest.name}\` is a chain of several models`, "unsupported", {
      hint: 'import { openChain } from "edge-infer"; const chain = await openChain(url)',
    });
  }
  const known = manifest.variants.map((variant) => `\`${variant.id}\``).join(", ");
  const named = manifest.variants.filter((variant) => id === undefined || variant.id === id);
  if (named.length === 0) {
    const hint = `ask for \`${manifest.variants[0].id}\``;
    throw new EdgeInferError(`Bundle \`${manifest.name}\` has no variant \`${id}\`; choose from ${known}`, "input_error", { hint });
  }
  const order = backend === undefined ? formats : [FORMATS[backend]];
  const firstOf = (/** @type {Variant[]} */ variants) => order.find((one) => variants.some((variant) => variant.format === one));
  const fitting = named.filter((variant) => id !== undefined || isForPages(variant));
  const format = firstOf(fitting) ?? firstOf(named);
  if (format === undefined) {
    const found = [...new Set(named.map((variant) => variant.format))];
    throw unreadable(`bundle \`${manifest.name}\``, backend, found);
  }
  const readable = (firstOf(fitting) ? fitting : named).filter((variant) => variant.format === format);
  const rank = (/** @type {Variant} */ variant) => precisions.indexOf(variant.precision);
  return readable.toSorted((one, other) => rank(one) - rank(other))[0];
}

/** @param {Variant} variant @returns {boolean} Whether it was made for pages, or for all places. */
function isForPages({ targets = ["any"] }) {
  return targets.some((one) => TARGETS.includes(one));
}

/**
 * Refuse a model file that an engine does not read.
 *
 * @param {string} file
 * @param {string} format
 * @param {EngineName} [backend]
 * @throws {EdgeInferError} `input_error`.
 */
export function checkFormat(file, format, backend) {
  if (backend !== undefined && FORMATS[backend] !== format) throw unreadable(`\`${file}\``, backend, [format]);
}

/** @param {string} format @returns {EngineName} The engine that reads it. */
export function engineOf(format) {
  const found = Object.entries(FORMATS).find(([, one]) => one === format);
  if (!found) throw unreadable("the variant", undefined, [format]);
  return /** @type {EngineName} */ (found[0]);
}

/**
 * @param {string} what
 * @param {EngineName | undefined} backend
 * @param {string[]} found
 */
function unreadable(what, backend, found) {
  if (found.every((format) => format === "decoder")) {
    return new EdgeInferError(`A session does not run what generates text, and ${what} is a decoder`, "unsupported_model", {
      hint: 'import { generate } from "edge-infer"; const generator = await generate(url)',
    });
  }
  const reads = backend === undefined ? "A page runs ONNX, TFLite and compiled models" : `Backend \`${backend}\` reads ${FORMATS[backend]}`;
  return new EdgeInferError(`${reads}, and ${what} is ${found.join(" and ")}`, backend === undefined ? "unsupported_model" : "input_error", {
    hint: backend === undefined ? "convert the model again with `edge-infer convert`" : "leave `backend` out, or choose another",
  });
}
