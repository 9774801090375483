/** Open a bundle that generates text: fetch its files, and make a decoder of its weights. */

import { fetchFile, openBundle } from "../bundle/bundle.js";
import { openStore } from "../cache/store.js";
import { EdgeInferError } from "../errors.js";
import { Tokenizer } from "../tasks/text/tokenizer.js";
import { decoderVariant, definitionOf } from "./definition.js";
import { TextModel } from "./text-model.js";

/**
 * @typedef {object} Asked
 * @property {string} url The bundle's address.
 * @property {string} root The URL under which `src/` and `vendor/` lie.
 * @property {string} [variant] The weights to use, such as `decoder/int8`; the smallest unless given.
 * @property {number} [context] Tokens of prompt and answer together.
 * @property {number} [threads] The most that compute; as many as are faster unless given.
 * @property {string} [apiKey]
 * @property {boolean} keep Whether the files are kept for the next visit.
 */
/**
 * @typedef {object} Facts What runs.
 * @property {string} model The bundle's name and the first digits of its revision.
 * @property {string} variant
 * @property {string} architecture The model's family.
 * @property {number} context Tokens of prompt and answer together.
 * @property {boolean} hasTemplate Whether it takes conversations.
 * @property {boolean} fromStorage Whether the weights came from the page's storage.
 * @property {boolean} offline Whether the server could not be reached.
 * @property {import("../cache/place.js").PlaceKind | "none"} storage Where the files are kept for the next visit.
 * @property {string[]} notices What could not be kept.
 */

/** Where nobody says how long a sequence may be: a model's own context may need gigabytes. */
const DEFAULT_CONTEXT = 4096;
/** `edge_infer.generation.decoder.MAX_THREADS`. */
const MAX_THREADS = 256;

/**
 * @param {Asked} asked
 * @param {{onProgress?: import("../fetch/download.js").OnProgress, signal?: AbortSignal, startWorker?: import("./team.js").StartWorker}} [options]
 *   `startWorker`: of the threads; without it there is one.
 * @returns {Promise<{model: TextModel, facts: Facts}>}
 * @throws {EdgeInferError} The bundle is missing or wrong, or generates no text; `input_error`: the context or the threads are out of
 *   range; `unsupported`: there are no threads here.
 */
export async function openTextModel({ url, root, variant: wanted, context, threads, apiKey, keep }, { onProgress, signal, startWorker } = {}) {
  const store = keep && !url.startsWith("file:") ? await openStore() : undefined;
  const { manifest, revision, isOffline } = await openBundle(url, { signal, apiKey, store });
  const definition = definitionOf(manifest);
  const variant = decoderVariant(manifest, wanted);
  const longest = context ?? Math.min(definition.context, DEFAULT_CONTEXT);
  if (!Number.isInteger(longest) || longest < 1 || longest > definition.context) {
    throw new EdgeInferError(`\`context\` is ${longest}, expected 1 to ${definition.context}`, "input_error", { details: { option: "context" } });
  }
  if (threads !== undefined && (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS)) {
    throw new EdgeInferError(`\`threads\` is ${threads}, expected 1 to ${MAX_THREADS}`, "input_error", { details: { option: "threads" } });
  }
  const place = new URL(url);
  const read = (/** @type {string} */ path) => fetchFile(place, manifest, path, { signal, apiKey, store });
  const readWeights = async () => {
    const [{ Decoder, WeightRoom, kernelModule }, { threadsHere }] = await Promise.all([import("./decoder.js"), import("./team.js")]);
    const count = startWorker ? threadsHere(threads) : threadsAlone(threads);
    const module = await kernelModule(count > 1);
    /** @type {import("./decoder.js").WeightRoom | undefined} */
    let room;
    // The weights arrive where the kernels read them: a page has them once.
    const into = (/** @type {number} */ size) => (room = new WeightRoom(size, module)).bytes;
    const { bytes, isKept } = await fetchFile(place, manifest, variant.file, { onProgress, signal, apiKey, store, into });
    const options = { context: longest, threads: count, areFixed: threads !== undefined, startWorker };
    return { isKept, open: () => room?.open(options) ?? Decoder.of(bytes, { ...options, module }) };
  };
  const [weights, file, source] = await Promise.all([
    readWeights(),
    read(definition.tokenizer),
    definition.chatTemplate === null ? null : read(definition.chatTemplate),
  ]);
  const tokenizer = new Tokenizer(file.bytes);
  signal?.throwIfAborted();
  const decoder = weights.open();
  if (decoder.config.vocab_size !== definition.vocabSize) {
    decoder.close();
    throw new EdgeInferError(`\`${variant.file}\` has ${decoder.config.vocab_size} tokens, the manifest says ${definition.vocabSize}`, "bundle_error", {
      hint: "convert the model again",
    });
  }
  const text = source && new TextDecoder().decode(source.bytes);
  const openTemplate = async () => {
    const { ChatTemplate, loadJinja } = await import("./template.js");
    return new ChatTemplate(await loadJinja(root), /** @type {string} */ (text), definition.specialTokens);
  };
  const label = `${manifest.name}@${revision.slice(0, 6)}`;
  return {
    model: new TextModel(decoder, tokenizer, definition, text === null ? null : openTemplate, label),
    facts: {
      model: label,
      variant: variant.id,
      architecture: definition.architecture,
      context: longest,
      hasTemplate: text !== null,
      fromStorage: weights.isKept,
      offline: isOffline,
      storage: store?.kind ?? "none",
      notices: [...(store?.notices ?? [])],
    },
  };
}

/** @param {number | undefined} wanted @returns {number} */
function threadsAlone(wanted) {
  if (wanted === undefined || wanted === 1) return 1;
  throw new EdgeInferError(`The decoder cannot have ${wanted} threads: there are no workers here`, "unsupported", { hint: "leave `threads` out" });
}
