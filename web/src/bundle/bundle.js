/**
 * Fetch a bundle: its manifest, the variant that fits this page, and the model's bytes, checked by size and sha256.
 * The rules are those of `edge_infer.bundle.bundle`.
 */

import { downloadBytes } from "../fetch/download.js";
import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";
import { goodBytes, transfer } from "../fetch/transfer.js";
import { MANIFEST, manifestError, parseManifest } from "./manifest.js";
import { checkFormat, decide } from "./selection.js";

/** @typedef {import("./manifest.js").Manifest} Manifest */
/** @typedef {import("./manifest.js").Variant} Variant */
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
/** @typedef {(path: string, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>} Reader Gives a file of the bundle, checked; `manifest.json` too. */
/** @typedef {import("./selection.js").Choosing} Choosing */
/** @typedef {import("./selection.js").Measured} Measured */
/**
 * @typedef {object} Fetching
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
/** @typedef {Choosing & Fetching} FetchOptions */

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
 * @throws {EdgeInferError} `fetch_error`, `manifest_error` or `integrity_error`.
 */
export async function fetchBundle(url, options = {}) {
  const { variant, backend, formats, precisions, onManifest, onChosen, onProgress, signal, apiKey, store, measured, readsInPlace, withExamples } = options;
  refuseHub(url);
  const place = new URL(url, globalThis.location?.href);
  const ending = BARE.exec(fileOf(place))?.[1];
  if (ending) {
    const format = BARE_FORMATS[ending];
    const bare = { id: `${format}/model`, format, precision: "", file: fileOf(place).split(/[/#]/).pop() ?? "" };
    checkFormat(bare.file, format, backend);
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
 * @throws {EdgeInferError} `fetch_error`.
 */
export async function fetchBare(place, { onProgress, signal, apiKey, store }) {
  const options = /** @type {const} */ ({ phase: "model", onProgress, hint: NO_BUNDLE, headers: keyHeader(apiKey), signal });
  if (store && store.kind !== "memory" && /^https?:$/.test(place.protocol)) {
    const { taggedFile } = await import("../cache/tagged-file.js");
    return taggedFile(store, place, options);
  }
  return { bytes: await downloadBytes(place, options), isKept: false, isOffline: false };
}

/** @param {string} file @returns {Reader} Of a bare model. */
function readNothing(file) {
  return async () => {
    throw new EdgeInferError(`\`${file}\` is one model file, without a bundle around it`, "unsupported", { hint: NO_BUNDLE });
  };
}

/** @typedef {{bytes: Uint8Array<ArrayBuffer>, isKept: boolean}} ReadFile */

/**
 * Read what a session needs of a bundle: the variant's model, the labels, and the golden examples where they are asked for.
 *
 * @param {Manifest} manifest
 * @param {Variant} variant
 * @param {(path: string) => Promise<ReadFile>} read
 * @param {boolean | undefined} withExamples
 * @param {() => void} onChosen Called before the first file is read.
 * @param {() => Promise<{bytes: Uint8Array | StoredFile, isKept: boolean}>} [readModel] Reads the variant's file.
 */
export async function readContent({ name, labels: labelsPath, examples: examplesPath }, variant, read, withExamples, onChosen, readModel) {
  if (variant.external?.length) {
    throw new EdgeInferError(`Variant \`${variant.id}\` has external data, which a page cannot read`, "unsupported_model", {
      hint: "save the model as one file",
    });
  }
  onChosen();
  const { bytes: model, isKept } = await (readModel ?? (() => read(variant.file)))();
  try {
    const labels = labelsPath === undefined ? [] : JSON.parse(new TextDecoder().decode((await read(labelsPath)).bytes));
    if (!Array.isArray(labels) || labels.some((label) => typeof label !== "string")) {
      throw new EdgeInferError(`\`${labelsPath}\` is not a JSON list of texts`, "bundle_error");
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
    throw new EdgeInferError(`${place} is one model file: there is nothing to choose from`, "input_error", {
      hint: "measure a bundle: `edge-infer convert model.onnx -o model.bundle`",
    });
  }
  const { bytes, isOffline } = await fetchManifest(fileUrl(place, MANIFEST), { signal, apiKey, store });
  return { manifest: parseManifest(bytes), bytes, revision: await sha256(bytes), isOffline };
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
    const isUnreachable = error instanceof EdgeInferError && error.code === "fetch_error" && !("status" in error.details);
    const kept = isUnreachable && !signal?.aborted ? await store?.recall(name) : null;
    if (!kept) throw error;
    return { bytes: kept, isOffline: true };
  }
}

/**
 * Refuse an address of the Hugging Face Hub: a page takes bundles.
 *
 * @param {string | URL} url
 */
function refuseHub(url) {
  if (!String(url).startsWith("hf:")) return;
  const hint = `edge-infer convert ${url} -o model.bundle, then load that bundle by its URL`;
  throw new EdgeInferError(`A page does not load \`${url}\`: it takes bundles`, "unsupported", { hint });
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
  if (!entry) throw manifestError(`does not list \`${path}\``);
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
 * @param {import("../fetch/transfer.js").FileEntry} entry
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 * @throws {EdgeInferError} `integrity_error`: it is not the one that the manifest lists.
 */
async function readChecked(url, entry) {
  const bytes = await downloadBytes(url, { phase: "model" });
  if ((await goodBytes(bytes, entry)) === entry.size) return bytes;
  throw new EdgeInferError(`\`${entry.path}\` at ${url} is not the file that the manifest lists`, "integrity_error", {
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
