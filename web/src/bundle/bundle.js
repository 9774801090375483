/**
 * Fetch a bundle: its manifest, the variant that fits this page, and the model's bytes, checked by size and sha256.
 * The rules are those of `edge_infer.bundle.manifest`, `bundle` and `select`.
 */

import { downloadBytes } from "../fetch/download.js";
import { InferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { PART_BYTES, goodBytes, transfer } from "../fetch/transfer.js";

/** @typedef {import("../tensors.js").TensorSpec} TensorSpec */
/** @typedef {import("../fetch/transfer.js").FileEntry} FileEntry */
/**
 * @typedef {object} Variant
 * @property {string} id
 * @property {string} format
 * @property {string} precision
 * @property {Record<string, import("./golden.js").Known>} [parity] By output, how far from the source it may be.
 * @property {string} file
 * @property {string[]} [targets]
 * @property {string[]} [external]
 * @property {Record<string, Record<string, string>>} [options]
 * @property {{kind: "hidden" | "pair", out?: string, in?: string}[]} [state] What a stream carries from step to step.
 */
/**
 * @typedef {object} Manifest
 * @property {string} schema_version
 * @property {string} name
 * @property {string} version
 * @property {TensorSpec[]} inputs
 * @property {TensorSpec[]} outputs
 * @property {Variant[]} variants
 * @property {FileEntry[]} files
 * @property {string} [labels]
 * @property {string} [examples]
 * @property {string} [task] What the model is for, such as `image-classification`.
 * @property {Record<string, any>} [pipeline] The steps before and after the model; `tasks/definition.js` reads them.
 * @property {{hub: string, revision: string}} [source] The repository that the model came from, at a commit.
 * @property {{reference: string}} [monitor] What drift is compared with; `monitor/` reads it.
 * @property {Record<string, any>} [generate] What the generation of text needs beside the weights; `generation/` reads it.
 * @property {Record<string, any>} [chain] How the bundles inside feed one another; `chains/` reads it.
 */
/**
 * @typedef {object} FetchedBundle
 * @property {string} name
 * @property {string} revision The sha256 of the manifest, or of a bare model.
 * @property {Variant} variant
 * @property {Uint8Array | StoredFile} model Whoever opens it closes what is not in memory.
 * @property {string[]} labels
 * @property {boolean} isKept Whether the model came from the page's storage.
 * @property {boolean} isOffline Whether the server could not be reached.
 * @property {import("./golden.js").Example[]} [examples] The golden ones, where they were asked for.
 * @property {string} why What decided on the variant.
 * @property {Reader} read Reads further files of the bundle.
 */
/** @typedef {import("../cache/stored-file.js").StoredFile} StoredFile */
/** @typedef {import("./measured.js").EngineName} EngineName */
/** @typedef {(path: string, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>} Reader Gives a file of the bundle, checked; `manifest.json` too. */
/** @typedef {import("./measured.js").Measurement & {why: string}} Measured */
/**
 * @typedef {object} FetchOptions
 * @property {string} [variant] The id of the variant to take; chosen unless given.
 * @property {EngineName} [backend] The engine that must read the variant; by the formats unless given.
 * @property {string[]} [formats] Which format to take first; a compiled one, then ONNX unless given.
 * @property {string[]} [precisions] Which precision to take first; int8 unless given.
 * @property {(manifest: Manifest) => void} [onManifest] Told the manifest before any other file is fetched; what it throws ends the fetch.
 * @property {(variant: Variant, measured?: Measured) => void} [onChosen] Told the variant before its file is fetched.
 * @property {(revision: string) => Promise<{best?: Measured, wrong: string[]}>} [measured] Asked for what a measurement says:
 *   the best way, and the variants that give wrong answers here.
 * @property {(variant: Variant) => boolean} [readsInPlace] Whether its engine reads a large file from the storage.
 * @property {boolean} [withExamples] Whether the golden examples are fetched too.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {AbortSignal} [signal]
 * @property {string} [apiKey] What a server with tenants asks for.
 * @property {import("../cache/store.js").Store} [store] Where files are kept; nowhere unless given.
 */

const MANIFEST = "manifest.json";
const SCHEMA_MAJOR = "1";
const MAX_MANIFEST_BYTES = 16 * 2 ** 20;
const RESERVED_IN_VARIANT = ["generate", "stream"];
// `edge_infer.runtime.selection`: which precision to take first on wasm, and what a variant must be made for.
const PRECISIONS = ["int8", "mixed", "fp32", "fp16", "int4", ""];
const TARGETS = ["any", "web"];
/** What each engine reads, the preferred first: a compiled model needs no engine to be fetched. @type {Record<EngineName, string>} */
const FORMATS = { compiled: "compiled", ort: "onnx", litert: "tflite" };
/** The format of a bare model file, by its ending. @type {Record<string, string>} */
const BARE_FORMATS = { onnx: "onnx", ort: "onnx", tflite: "tflite", wasm: "compiled" };
const BARE = /\.(onnx|ort|tflite|wasm)$/;
const COPY_AGAIN = "copy or convert the bundle again";
const NO_BUNDLE = "make it with `edge-infer convert model.onnx -o model.bundle` and serve it with `edge-infer serve`";

/** The file that an address names. A file that a reader has dropped has a `blob:` address, which ends in `#NAME`. @param {URL} place */
function fileOf({ protocol, pathname, hash }) {
  return protocol === "blob:" ? hash : pathname;
}

/**
 * Fetch what a session needs.
 *
 * @param {string} url The address of a bundle, or of a bare `.onnx`, `.ort`, `.tflite` or compiled `.wasm` file.
 * @param {FetchOptions} [options]
 * @returns {Promise<FetchedBundle>}
 * @throws {InferError} `fetch_error`, `manifest_error` or `integrity_error`.
 */
export async function fetchBundle(url, options = {}) {
  const { variant, backend, formats, precisions, onManifest, onChosen, onProgress, signal, apiKey, store, measured, readsInPlace, withExamples } = options;
  refuseHub(url);
  const place = new URL(url, globalThis.location?.href);
  const ending = BARE.exec(fileOf(place))?.[1];
  if (ending) {
    const format = BARE_FORMATS[ending];
    const bare = { id: `${format}/model`, format, precision: "", file: fileOf(place).split(/[/#]/).pop() ?? "" };
    if (backend !== undefined && FORMATS[backend] !== format) throw unreadable(`\`${bare.file}\``, backend, [format]);
    onChosen?.(bare);
    const { bytes: model, ...whence } = await fetchBare(place, { onProgress, signal, apiKey, store });
    const name = bare.file.replace(/\.[a-z]+$/, "");
    const facts = { labels: [], why: "rule: it is the only one", read: readNothing(bare.file) };
    return { name, revision: await sha256(model), variant: bare, model, ...whence, ...facts };
  }
  const { manifest, bytes, revision, isOffline } = await openBundle(url, { signal, apiKey, store });
  onManifest?.(manifest);
  const said = variant === undefined || backend === undefined ? await measured?.(revision) : undefined;
  const { chosen, found, why } = decide(manifest, said, { variant, backend, formats, precisions });
  const read = (/** @type {string} */ path) =>
    fetchFile(place, manifest, path, { onProgress: path === chosen.file ? onProgress : undefined, signal, apiKey, store });
  const readModel = async () => {
    const entry = manifest.files.find((file) => file.path === chosen.file);
    const options = { onProgress, signal, hint: COPY_AGAIN, headers: keyHeader(apiKey) };
    const isInPlace = entry && store && readsInPlace?.(chosen) && place.protocol !== "file:";
    return (isInPlace && (await store.inPlace(fileUrl(place, chosen.file), entry, manifest.name, options))) || read(chosen.file);
  };
  const content = await readContent(manifest, chosen, read, withExamples, () => onChosen?.(chosen, found), readModel);
  /** @type {Reader} */
  const readMore = async (path, signal) => (path === MANIFEST ? bytes : (await fetchFile(place, manifest, path, { signal, apiKey, store })).bytes);
  return { ...content, revision, isOffline, why, read: readMore };
}

/**
 * Fetch a file that no manifest lists: a bare model, or what stands beside the model in a folder of the Hub. It is kept
 * where its server tells the version of it.
 *
 * @param {URL} place
 * @param {Pick<FetchOptions, "onProgress" | "signal" | "apiKey" | "store">} options
 * @returns {Promise<{bytes: Uint8Array<ArrayBuffer>, isKept: boolean, isOffline: boolean}>}
 * @throws {InferError} `fetch_error`.
 */
export async function fetchBare(place, { onProgress, signal, apiKey, store }) {
  const options = /** @type {const} */ ({ phase: "model", onProgress, hint: NO_BUNDLE, headers: keyHeader(apiKey), signal });
  if (store && store.kind !== "memory" && /^https?:$/.test(place.protocol)) {
    const { taggedFile } = await import("../cache/tagged-file.js");
    return taggedFile(store, place, options);
  }
  return { bytes: await downloadBytes(place, options), isKept: false, isOffline: false };
}

/**
 * Choose a variant: the one asked for, the fastest of those measured, or the first by the rules that is not known to be wrong.
 *
 * @param {Manifest} manifest
 * @param {{best?: Measured, wrong: string[]} | undefined} measured What a measurement says.
 * @param {Pick<FetchOptions, "variant" | "backend" | "formats" | "precisions">} options
 * @returns {{chosen: Variant, found: Measured | undefined, why: string}} What was measured of it, and what decided.
 * @throws {InferError} `unsupported_model` or `input_error`: there is none.
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

/** @param {string} file @returns {Reader} Of a bare model. */
function readNothing(file) {
  return async () => {
    throw new InferError(`\`${file}\` is one model file, without a bundle around it`, "unsupported", { hint: NO_BUNDLE });
  };
}

/** @typedef {[path: string, bytes: Uint8Array<ArrayBuffer>][]} Files */
/** @typedef {{bytes: Uint8Array<ArrayBuffer>, isKept: boolean}} ReadFile */

/**
 * Open a bundle whose files are in memory already, such as a version that was pulled from a store.
 *
 * @param {Files} files
 * @param {Pick<FetchOptions, "variant" | "backend" | "formats" | "precisions" | "onChosen">} [choosing]
 * @returns {Promise<FetchedBundle>}
 * @throws {InferError} `manifest_error`, `bundle_error` or `unsupported_model`; `input_error`: they are those of an index.
 */
export async function bundleOfFiles(files, { variant, backend, formats, precisions, onChosen } = {}) {
  const found = new Map(files);
  const read = async (/** @type {string} */ path) => {
    const bytes = found.get(path);
    if (!bytes) throw new InferError(`The bundle lacks \`${path}\``, "bundle_error", { hint: "publish the model again" });
    return { bytes, isKept: true };
  };
  if (!found.has(MANIFEST) && found.has("index.json")) {
    throw new InferError("It is an index of vectors, and no model", "input_error", { hint: "openIndex(url)" }); // nothing is wrong with it
  }
  const { bytes } = await read(MANIFEST);
  const manifest = parseManifest(bytes);
  const chosen = chooseVariant(manifest, variant, backend, { formats, precisions });
  const models = new Set(manifest.variants.map(({ file }) => file));
  // The models are let go: what is read later are small files, such as a vocabulary.
  const small = new Map(files.filter(([path]) => !models.has(path)));
  /** @type {Reader} */
  const readMore = async (path) => {
    const kept = small.get(path);
    if (!kept) throw wrong(`does not list \`${path}\``);
    return kept;
  };
  const content = await readContent(manifest, chosen, read, true, () => onChosen?.(chosen));
  return { ...content, revision: await sha256(bytes), isOffline: false, why: variant === undefined ? "rule" : "asked for", read: readMore };
}

/**
 * @param {Manifest} manifest
 * @param {Variant} variant
 * @param {(path: string) => Promise<ReadFile>} read
 * @param {boolean | undefined} withExamples
 * @param {() => void} onChosen Called before the first file is read.
 * @param {() => Promise<{bytes: Uint8Array | StoredFile, isKept: boolean}>} [readModel] Reads the variant's file.
 */
async function readContent({ name, labels: labelsPath, examples: examplesPath }, variant, read, withExamples, onChosen, readModel) {
  if (variant.external?.length) {
    throw new InferError(`Variant \`${variant.id}\` has external data, which a page cannot read`, "unsupported_model", {
      hint: "save the model as one file",
    });
  }
  onChosen();
  const { bytes: model, isKept } = await (readModel ?? (() => read(variant.file)))();
  try {
    const labels = labelsPath === undefined ? [] : JSON.parse(new TextDecoder().decode((await read(labelsPath)).bytes));
    if (!Array.isArray(labels) || labels.some((label) => typeof label !== "string")) {
      throw new InferError(`\`${labelsPath}\` is not a JSON list of texts`, "bundle_error");
    }
    const golden = withExamples && examplesPath !== undefined ? (await read(examplesPath)).bytes : undefined;
    const examples = golden && (await import("./golden.js")).readExamples(golden);
    return { name, variant, model, labels, isKept, examples };
  } catch (error) {
    if (!(model instanceof Uint8Array)) model.close();
    throw error;
  }
}

/**
 * Fetch a bundle's manifest.
 *
 * @param {string} url
 * @param {Pick<FetchOptions, "signal" | "apiKey" | "store">} options
 * @returns {Promise<{manifest: Manifest, bytes: Uint8Array<ArrayBuffer>, revision: string, isOffline: boolean}>} The revision is the sha256 of the manifest.
 */
export async function openBundle(url, { signal, apiKey, store }) {
  refuseHub(url);
  const place = new URL(url, globalThis.location?.href);
  if (BARE.test(fileOf(place))) {
    throw new InferError(`${place} is one model file: there is nothing to choose from`, "input_error", {
      hint: "measure a bundle: `edge-infer convert model.onnx -o model.bundle`",
    });
  }
  const { bytes, isOffline } = await fetchManifest(fileUrl(place, MANIFEST), { signal, apiKey, store });
  return { manifest: parseManifest(bytes), bytes, revision: await sha256(bytes), isOffline };
}

/**
 * List the variants that a page can run: those made for pages or for all, where there are any.
 *
 * @param {Manifest} manifest
 * @param {string} [id] The only one to consider.
 * @param {EngineName} [backend] The engine that must read it.
 * @returns {Variant[]}
 * @throws {InferError} `unsupported_model`: there is none.
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
 * @param {string} [apiKey]
 * @returns {Record<string, string> | undefined} The header that browsers leave out where they are redirected to another server.
 */
function keyHeader(apiKey) {
  return apiKey === undefined ? undefined : { Authorization: `Bearer ${apiKey}` };
}

/**
 * Fetch a manifest; where the server cannot be reached, take the one that was kept.
 *
 * @param {URL} url
 * @param {FetchOptions} options
 * @returns {Promise<{bytes: Uint8Array<ArrayBuffer>, isOffline: boolean}>}
 */
async function fetchManifest(url, { signal, apiKey, store }) {
  const name = `manifest-${await sha256(new TextEncoder().encode(url.href))}`;
  try {
    const bytes = await downloadBytes(url, { phase: "model", hint: NO_BUNDLE, headers: keyHeader(apiKey), signal });
    parseManifest(bytes);
    await store?.remember(name, bytes);
    return { bytes, isOffline: false };
  } catch (error) {
    const isUnreachable = error instanceof InferError && error.code === "fetch_error" && !("status" in error.details);
    const kept = isUnreachable && !signal?.aborted ? await store?.recall(name) : null;
    if (!kept) throw error;
    return { bytes: kept, isOffline: true };
  }
}

/**
 * Parse and check a manifest, as far as this page uses it.
 *
 * @param {Uint8Array} bytes
 * @returns {Manifest}
 * @throws {InferError} `manifest_error`.
 */
export function parseManifest(bytes) {
  if (bytes.length > MAX_MANIFEST_BYTES) throw wrong(`has ${bytes.length} bytes, expected at most ${MAX_MANIFEST_BYTES}`);
  /** @type {any} */
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw wrong(`is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (manifest === null || typeof manifest !== "object" || Array.isArray(manifest)) throw wrong("holds no object");
  const { schema_version: version, name, variants, files } = manifest;
  if (typeof version !== "string") throw wrong("has no `schema_version`");
  if (version.split(".")[0] !== SCHEMA_MAJOR) {
    throw wrong(`has schema_version \`${version}\`, this page reads ${SCHEMA_MAJOR}.x`, "update edge-infer");
  }
  if (typeof name !== "string" || !/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name)) throw wrong("has no proper `name`");
  for (const key of ["inputs", "outputs", "variants", "files"]) {
    if (!Array.isArray(manifest[key])) throw wrong(`has no list \`${key}\``);
  }
  const { chain } = manifest;
  if (chain !== undefined && (chain === null || typeof chain !== "object" || Array.isArray(chain))) throw wrong("has a `chain` that is no object");
  if (variants.length === 0 && chain === undefined) throw wrong("has no variant");
  checkFiles(files);
  const paths = new Set(files.map((/** @type {FileEntry} */ file) => file.path));
  for (const variant of variants) {
    if (variant === null || typeof variant !== "object") throw wrong(`has \`${JSON.stringify(variant)}\` in place of a variant`);
    refuse(variant, RESERVED_IN_VARIANT);
    if (!Array.isArray(variant.state ?? [])) throw wrong(`has a variant \`${variant.id}\` whose state is no list`);
    for (const state of variant.state ?? []) {
      const isPair = state?.kind === "pair" && typeof state.out === "string" && typeof state.in === "string";
      if (state?.kind !== "hidden" && !isPair) throw wrong(`has a variant \`${variant.id}\` whose state has no kind that is known`);
    }
    if (typeof variant?.id !== "string" || !paths.has(variant.file)) {
      throw wrong(`has a variant \`${variant?.id}\` whose file \`${variant?.file}\` it does not list`);
    }
  }
  checkGenerate(manifest.generate, paths);
  checkSource(manifest.source);
  if (new Set(variants.map((/** @type {Variant} */ { id }) => id)).size < variants.length) throw wrong("names a variant twice");
  return manifest;
}

/**
 * Check the kind and the files of `generate`; the rest is checked by what generates.
 *
 * @param {any} generate
 * @param {Set<string>} paths
 */
function checkGenerate(generate, paths) {
  if (generate === undefined) return;
  if (generate === null || typeof generate !== "object" || Array.isArray(generate)) throw wrong("has a `generate` that is no object");
  if (typeof generate.kind !== "string" || generate.kind === "") throw wrong("has a `generate` without a `kind`");
  for (const field of ["tokenizer", "chat_template", "vectors"]) {
    if (field in generate && !paths.has(generate[field])) throw wrong(`has a \`generate\` whose ${field} \`${generate[field]}\` it does not list`);
  }
}

/**
 * Check where a model came from.
 *
 * @param {any} source
 */
function checkSource(source) {
  if (source === undefined) return;
  const isText = (/** @type {unknown} */ value) => typeof value === "string" && value !== "";
  if (!isText(source?.hub) || !isText(source?.revision)) throw wrong("has a `source` without `hub` and `revision`");
}

/**
 * Refuse an address of the Hugging Face Hub: a page takes bundles.
 *
 * @param {string | URL} url
 */
function refuseHub(url) {
  if (!String(url).startsWith("hf:")) return;
  const hint = `edge-infer convert ${url} -o model.bundle, then load that bundle by its URL`;
  throw new InferError(`A page does not load \`${url}\`: it takes bundles`, "unsupported", { hint });
}

/** @param {FileEntry[]} files */
function checkFiles(files) {
  const seen = new Set();
  for (const file of files) {
    const path = file?.path;
    if (typeof path !== "string" || /[\\:\0]/.test(path) || path.split("/").some((part) => ["", ".", ".."].includes(part))) {
      throw wrong(`names the path \`${path}\`, which leaves the bundle or is not plain`);
    }
    if (seen.has(path)) throw wrong(`names \`${path}\` twice`);
    seen.add(path);
    if (!Number.isSafeInteger(file.size) || file.size < 0) throw wrong(`gives \`${path}\` no size`);
    if (!/^[0-9a-f]{64}$/.test(file.sha256)) throw wrong(`gives \`${path}\` no sha256`);
    const { parts = [] } = file;
    if (!Array.isArray(parts) || (parts.length > 0 && parts.length !== Math.ceil(file.size / PART_BYTES))) {
      throw wrong(`gives \`${path}\` ${parts.length} part hashes for ${file.size} bytes`);
    }
  }
}

/**
 * @param {Record<string, unknown>} entry
 * @param {string[]} fields
 */
function refuse(entry, fields) {
  const found = fields.find((field) => entry !== null && typeof entry === "object" && field in entry);
  if (found) throw wrong(`has the field \`${found}\`, which is reserved for a later version`, "update edge-infer");
}

/**
 * @param {string} what
 * @param {string} [hint]
 */
function wrong(what, hint = "make the bundle again with `edge-infer convert`") {
  return new InferError(`manifest.json ${what}`, "manifest_error", { hint });
}

/**
 * Choose the variant for a page: made for pages or for all, of the preferred format and precision.
 *
 * @param {Manifest} manifest
 * @param {string} [id] The only one to consider.
 * @param {EngineName} [backend] The engine that must read it.
 * @param {Pick<FetchOptions, "formats" | "precisions">} [preferred] Which format and precision to take first.
 * @returns {Variant}
 * @throws {InferError} `unsupported_model`: the page can run none of them; `input_error`: not by what was asked for;
 *   `unsupported`: it is a chain.
 */
export function chooseVariant(manifest, id, backend, { formats = Object.values(FORMATS), precisions = PRECISIONS } = {}) {
  if (manifest.variants.length === 0) {
    throw new InferError(`\`${manifest.name}\` is a chain of several models`, "unsupported", {
      hint: 'import { openChain } from "edge-infer"; const chain = await openChain(url)',
    });
  }
  const known = manifest.variants.map((variant) => `\`${variant.id}\``).join(", ");
  const named = manifest.variants.filter((variant) => id === undefined || variant.id === id);
  if (named.length === 0) {
    const hint = `ask for \`${manifest.variants[0].id}\``;
    throw new InferError(`Bundle \`${manifest.name}\` has no variant \`${id}\`; choose from ${known}`, "input_error", { hint });
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
    return new InferError(`A session does not run what generates text, and ${what} is a decoder`, "unsupported_model", {
      hint: 'import { generate } from "edge-infer"; const generator = await generate(url)',
    });
  }
  const reads = backend === undefined ? "A page runs ONNX, TFLite and compiled models" : `Backend \`${backend}\` reads ${FORMATS[backend]}`;
  return new InferError(`${reads}, and ${what} is ${found.join(" and ")}`, backend === undefined ? "unsupported_model" : "input_error", {
    hint: backend === undefined ? "convert the model again with `edge-infer convert`" : "leave `backend` out, or choose another",
  });
}

/**
 * Fetch a file of a bundle, checked by its size and hashes.
 *
 * @param {URL} place The bundle's address.
 * @param {Manifest} manifest
 * @param {string} path
 * @param {FetchOptions & Pick<import("../fetch/transfer.js").TransferOptions, "into">} options A file of this machine does not go into `into`.
 * @returns {Promise<ReadFile>}
 */
export async function fetchFile(place, manifest, path, { onProgress, signal, apiKey, store, into }) {
  const entry = manifest.files.find((file) => file.path === path);
  if (!entry) throw wrong(`does not list \`${path}\``);
  const options = { onProgress, signal, hint: COPY_AGAIN, headers: keyHeader(apiKey), into };
  const url = fileUrl(place, path);
  if (url.protocol === "file:") return { bytes: await readChecked(url, entry), isKept: false };
  if (store) return store.file(url, entry, manifest.name, options);
  return { bytes: await transfer(url, entry, options), isKept: false };
}

/**
 * Read a file of this machine, as Node can.
 *
 * @param {URL} url
 * @param {FileEntry} entry
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {InferError} `integrity_error`: it is not the one that the manifest lists.
 */
async function readChecked(url, entry) {
  const bytes = await downloadBytes(url, { phase: "model" });
  if ((await goodBytes(bytes, entry)) === entry.size) return bytes;
  throw new InferError(`\`${entry.path}\` at ${url} is not the file that the manifest lists`, "integrity_error", {
    hint: "the file was changed or cut short: copy or convert the bundle again",
    details: { path: entry.path },
  });
}

/**
 * @param {URL} place
 * @param {string} path
 */
function fileUrl(place, path) {
  const url = new URL(place);
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/${path.split("/").map(encodeURIComponent).join("/")}`;
  return url;
}
