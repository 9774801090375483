/** What the steps of a chain do in the page: one function for each word of `WORKS`, as in `edge_infer/chains/steps/`. */

import { EdgeInferError } from "../errors.js";
import { RemoteModel, tensorsOf } from "../engines/remote-model.js";
import { optionsOf } from "../generation/options.js";
import { batched, rowOf } from "../tasks/batching.js";
import { canBatch } from "../tasks/prepared-steps.js";
import { argumentsOf, definitionOf } from "../tasks/definition.js";
import { cropped } from "../tasks/image/image.js";
import { Item } from "../tasks/item.js";
import { Place } from "../tasks/place.js";
import { TASKS } from "../tasks/parameters.js";
import { beginnings } from "../tasks/shared.js";
import { prepareStep, readStep } from "../tasks/steps.js";
import { didYouMean, listed } from "../tasks/words.js";
import { ONLY, wrong } from "./definition.js";
import { WORKS } from "./works.js";

/** @typedef {import("./definition.js").ChainStep} ChainStep */
/** @typedef {import("./works.js").Kind} Kind */
/** @typedef {import("../tasks/shared.js").Shared} Shared */
/** @typedef {import("../tasks/shared.js").Beginning} Beginning */
/** @typedef {{run: (values: Record<string, any>[], shared: Shared) => Promise<any[]>, beginnings?: Beginning[], close?: () => Promise<void>}} Doing A step that is ready to run. */
/**
 * @typedef {object} Openers What opens the parts of a chain, by their address.
 * @property {(url: string, server?: string) => Promise<any>} load
 * @property {(url: string, server?: string) => Promise<any>} pipeline
 * @property {(url: string) => Promise<any>} openIndex
 * @property {(url: string) => Promise<any>} generate
 * @property {string} [apiKey] That of the server that has the chain.
 */
/**
 * @typedef {object} Described A step with its bundle, before anything is loaded.
 * @property {ChainStep} step
 * @property {Record<string, string>} takes
 * @property {string[]} optional
 * @property {Kind} gives
 * @property {any} identity What its results depend on besides what it reads.
 * @property {Record<string, any>} [manifest] Its bundle's.
 * @property {string} [revision]
 * @property {Record<string, any>} [catalogue] What its index says.
 * @property {(openers: Openers) => Promise<Doing>} open
 */
/** @typedef {{url: string, manifest?: Record<string, any>, revision: string, catalogue?: Record<string, any>}} Inside What a step's bundle or index says. */

/** Tasks whose input has parts. @type {Record<string, Record<string, string>>} */
const PARTS = { "question-answering": { question: "text", context: "text" }, "text-ranking": { query: "text", documents: "answer" } };
const MOST_ROWS = 256;
const PLACE = /\{([A-Za-z_][A-Za-z0-9_-]*)\}/g;

/**
 * @param {ChainStep} step
 * @param {Inside} inside
 * @returns {Described}
 * @throws {EdgeInferError} `manifest_error`: the bundle is not what the step needs.
 */
export function describe(step, inside) {
  const work = WORKS[step.do];
  const described = { step, takes: work.takes, optional: work.optional, gives: { name: work.gives, depth: work.depth }, manifest: inside.manifest, revision: inside.revision, catalogue: inside.catalogue };
  const identity = [step.do, inside.revision, step.parameters, step.where ?? null];
  return { ...described, identity, ...DESCRIBE[step.do](step, inside) };
}

/** @type {Record<string, (step: ChainStep, inside: Inside) => Partial<Described> & {open: Described["open"]}>} */
const DESCRIBE = { model, tensors, crop, cut, search, rank, prompt, generate };

/** @param {ChainStep} step @param {Inside} inside */
function model(step, { url, manifest = {} }) {
  const at = `chain: step \`${step.name}\``;
  if (manifest.pipeline === undefined) throw wrong(`${at}: \`${manifest.name}\` does not say what stands before and after the model`, '"do": "tensors", or convert it with --task');
  const definition = definitionOf(manifest);
  const { takes, args } = TASKS[definition.task] ?? { takes: "text", args: [] };
  if (!["image", "sound", "text"].includes(takes)) throw wrong(`${at}: a chain cannot feed ${definition.task}, which takes a ${takes}`);
  const known = [...argumentsOf(definition), ...args].sort();
  for (const name of Object.keys(step.parameters)) {
    if (!known.includes(name)) throw wrong(`${at}: ${definition.task} takes no argument \`${name}\``, didYouMean(name, known) || `it takes ${listed(known)}`);
  }
  const last = definition.outputs[definition.outputs.length - 1].name;
  return {
    takes: PARTS[definition.task] ?? { [ONLY]: takes },
    gives: { name: definition.task === "text-ranking" ? "answer" : givenBy(last), depth: 0 },
    open: async (/** @type {Openers} */ openers) => {
      const pipeline = await openers.pipeline(url, step.server);
      if (step.server) await atServer(pipeline.session, step.server, url, openers.apiKey);
      return {
        beginnings: pipeline.beginnings,
        run: (/** @type {Record<string, any>[]} */ values, /** @type {Shared} */ shared) =>
          pipeline.answer(values.map((one) => (ONLY in one ? one[ONLY] : one)), step.parameters, shared),
        close: () => pipeline.dispose(),
      };
    },
  };
}

/** @param {string} last The last step's name. */
function givenBy(last) {
  if (last === "post.detections") return "boxes";
  if (last === "post.speech_segments") return "segments";
  return ["post.normalize", "post.pool", "post.sigmoid", "post.softmax", "post.tensor"].includes(last) ? "tensor" : "answer";
}

/**
 * Let a session's runs go to a server; its files and specs stay those of the bundle here.
 *
 * @param {any} session
 * @param {string} server
 * @param {string} url Where the bundle lies.
 * @param {string} [apiKey] That of the bundle's server; a chain may name any other, which is not told.
 */
async function atServer(session, server, url, apiKey) {
  const [there, here] = [server, url].map((one) => new URL(one, globalThis.location?.href).origin);
  const remote = new RemoteModel(server, there === here ? apiKey : undefined);
  await remote.check(session).catch((error) => {
    throw error.code === "bundle_error" ? wrong(error.message, "serve the same bundle there") : error;
  });
  session.run = (/** @type {Record<string, unknown>} */ feeds, /** @type {{outputs?: string[], signal?: AbortSignal}} */ options) => remote.run(tensorsOf(session.inputs, feeds), options);
}

/** @param {ChainStep} step @param {Inside} inside */
function tensors(step, { url, manifest = {} }) {
  const [fed, known] = [Object.keys(step.reads).sort(), manifest.inputs.map((/** @type {any} */ { name }) => name).sort()];
  if (fed.join() !== known.join()) throw wrong(`chain: step \`${step.name}\` feeds ${listed(fed)}, the model takes ${listed(known)}`, '"from": {"NAME OF THE INPUT": "STEP"}');
  return {
    open: async (/** @type {Openers} */ openers) => {
      const session = await openers.load(url, step.server);
      if (step.server) await atServer(session, step.server, url, openers.apiKey);
      const most = canBatch(session.inputs, session.outputs) ? MOST_ROWS : 1;
      const specs = new Map(session.inputs.map((/** @type {any} */ spec) => [spec.name, spec]));
      const row = (/** @type {string} */ name, /** @type {any} */ tensor) => {
        const spec = /** @type {any} */ (specs.get(name));
        if (tensor?.dtype !== spec.dtype) throw new EdgeInferError(`input \`${name}\` is given ${tensor?.dtype ?? typeof tensor}, expected ${spec.dtype}`, "input_error", { hint: "let another step make it" });
        return most > 1 && tensor.shape.length === spec.shape.length && tensor.shape[0] === 1 ? { ...tensor, shape: tensor.shape.slice(1) } : tensor;
      };
      const run = async (/** @type {Record<string, any>[]} */ values) => {
        const rows = values.map((one) => Object.fromEntries(Object.entries(one).map(([name, tensor]) => [name, row(name, tensor)])));
        /** @type {Record<string, any>[][]} */
        const groups = [];
        for (const one of rows) {
          const last = groups[groups.length - 1];
          const isAlike = last && last.length < most && Object.entries(one).every(([name, { shape }]) => shape.join() === last[0][name].shape.join());
          if (isAlike) last.push(one);
          else groups.push([one]);
        }
        const found = [];
        for (const group of groups) {
          const feeds = Object.fromEntries([...specs].map(([name, spec]) => [name, batched(group.map((one) => one[/** @type {string} */ (name)]), /** @type {any} */ (spec), 0)]));
          const outputs = Object.entries(await session.run(feeds));
          for (let i = 0; i < group.length; i++) found.push(Object.fromEntries(outputs.map(([name, one]) => [name, most > 1 ? rowOf(/** @type {any} */ (one), i) : one])));
        }
        return found;
      };
      return { run, close: () => session.dispose() };
    },
  };
}

/** @param {string} name Of a step that decodes. @returns {Promise<{decode: import("../tasks/item.js").Apply, begins: Beginning[]}>} */
async function decoder(name) {
  const step = readStep({ step: name }, name);
  const place = new Place(async () => new Uint8Array(), [], [], []);
  return { decode: await prepareStep(step, place), begins: beginnings([step], place, {}) };
}

/** @param {ChainStep} step */
function crop({ parameters: { margin, label, min_score: least, most } }) {
  return {
    open: async () => {
      const { decode, begins } = await decoder("image.decode");
      const run = async (/** @type {Record<string, any>[]} */ values, /** @type {Shared} */ shared) => {
        const found = [];
        for (const one of values) {
          const { made } = await shared.through(one.image, [decode], begins, new Item());
          const boxes = one.boxes.filter((/** @type {any} */ box) => (label === null || box.label === label) && box.score >= least).slice(0, most);
          found.push(boxes.map((/** @type {any} */ { box }) => cutOut(made, box, margin)));
        }
        return found;
      };
      return { beginnings: begins, run };
    },
  };
}

/**
 * @param {import("../tasks/image/image.js").Image} image
 * @param {{xmin: number, ymin: number, xmax: number, ymax: number}} box In its pixels.
 * @param {number} margin How much of its size it is widened by on each side.
 * @returns {import("../tasks/image/image.js").Image} All whole pixels that it touches, at least one; of what lies in the image.
 */
export function cutOut(image, { xmin, ymin, xmax, ymax }, margin) {
  const [wide, high] = [xmax - xmin, ymax - ymin];
  const left = Math.min(Math.max(Math.floor(xmin - margin * wide), 0), image.width - 1);
  const top = Math.min(Math.max(Math.floor(ymin - margin * high), 0), image.height - 1);
  const right = Math.min(Math.max(Math.ceil(xmax + margin * wide), left + 1), image.width);
  const bottom = Math.min(Math.max(Math.ceil(ymax + margin * high), top + 1), image.height);
  return cropped(image, left, top, right - left, bottom - top);
}

/** @param {ChainStep} step */
function cut({ parameters: { margin_ms: margin, most } }) {
  return {
    open: async () => {
      const { decode, begins } = await decoder("audio.decode");
      const run = async (/** @type {Record<string, any>[]} */ values, /** @type {Shared} */ shared) => {
        const found = [];
        for (const one of values) {
          const { made } = await shared.through(one.sound, [decode], begins, new Item());
          found.push(one.segments.slice(0, most).map((/** @type {any} */ { start, end }) => stretch(made, start, end, margin / 1000)));
        }
        return found;
      };
      return { beginnings: begins, run };
    },
  };
}

/**
 * @param {import("../tasks/audio/sound.js").Sound} sound
 * @param {number} start Seconds.
 * @param {number} end
 * @param {number} margin
 * @returns {{array: Float32Array, sampling_rate: number}} The samples from one time to another, at least one.
 */
export function stretch({ samples, rate }, start, end, margin) {
  const first = Math.min(Math.max(Math.floor((start - margin) * rate + 0.5), 0), samples.length - 1);
  const last = Math.min(Math.max(Math.floor((end + margin) * rate + 0.5), first + 1), samples.length);
  return { array: samples.slice(first, last), sampling_rate: rate };
}

/** @param {ChainStep} step @param {Inside} inside */
function search(step, { url }) {
  const { k, mode, full_scan: fullScan } = step.parameters;
  for (const [name, isNeeded] of /** @type {[string, boolean][]} */ ([["vector", mode !== "words"], ["text", mode !== "vectors"]])) {
    if (isNeeded && !(name in step.reads)) throw wrong(`chain: step \`${step.name}\` searches by ${mode} and reads no \`${name}\``, `"from": {"${name}": ...}, or another \`mode\``);
  }
  return {
    open: async (/** @type {Openers} */ openers) => {
      const index = await openers.openIndex(url);
      const run = async (/** @type {Record<string, any>[]} */ values) =>
        values.map(({ vector, text }) => index.find({ k, mode, fullScan, where: step.where, text, ...(vector === undefined ? {} : { vector: vector.data ?? vector }) }));
      return { run };
    },
  };
}

/** @param {ChainStep} step @param {Inside} inside */
function rank(step, { url, manifest = {} }) {
  if (manifest.pipeline === undefined || manifest.task !== "text-ranking") {
    throw wrong(`chain: step \`${step.name}\` ranks, and \`${manifest.name}\` is for ${manifest.task}`, "take a cross-encoder, converted with --task text-ranking");
  }
  return {
    open: async (/** @type {Openers} */ openers) => {
      const pipeline = await openers.pipeline(url);
      const run = async (/** @type {Record<string, any>[]} */ values, /** @type {Shared} */ shared) => {
        const asked = values.filter(({ hits }) => hits.length);
        const raw = asked.map(({ query, hits }) => ({ query, documents: hits.map((/** @type {any} */ { text }) => text ?? "") }));
        const answers = raw.length ? await pipeline.answer(raw, {}, shared) : [];
        return values.map(({ hits }) => {
          if (!hits.length) return [];
          const ranked = answers.shift().slice(0, step.parameters.most);
          return ranked.map((/** @type {any} */ { corpus_id: i, score }) => ({ ...hits[i], score }));
        });
      };
      return { beginnings: pipeline.beginnings, run, close: () => pipeline.dispose() };
    },
  };
}

/** @param {ChainStep} step */
function prompt(step) {
  const { template, separator, max_characters: most } = step.parameters;
  const named = [...template.matchAll(PLACE)].map((found) => found[1]);
  const reads = Object.keys(step.reads);
  for (const name of named) if (!reads.includes(name)) throw wrong(`chain: step \`${step.name}\`: nothing is read as \`{${name}}\``, didYouMean(name, reads) || `it reads ${listed(reads)}`);
  for (const name of reads) if (!named.includes(name)) throw wrong(`chain: step \`${step.name}\`: the template has no place \`{${name}}\``, "leave it out of `from`");
  const run = async (/** @type {Record<string, any>[]} */ values) =>
    values.map((one) => template.replace(PLACE, (/** @type {string} */ _, /** @type {string} */ name) => textOf(name, one[name], most, separator)));
  return { open: async () => ({ run }) };
}

/**
 * @param {string} name
 * @param {any} value
 * @param {number} most
 * @param {string} separator
 * @returns {string} A text itself, of hits `[1] ...` for each, of labels their names, of speech its text.
 * @throws {EdgeInferError} `input_error`: it has no text.
 */
export function textOf(name, value, most, separator) {
  if (typeof value === "string") return start(value, most);
  const rows = Array.isArray(value) && value.every((one) => one !== null && typeof one === "object") ? value : null;
  if (rows?.every((one) => "metadata" in one)) return numbered(rows, most, separator);
  if (rows?.every((one) => typeof one.label === "string")) return start(rows.map(({ label }) => label).join(", "), most);
  for (const field of ["answer", "text"]) if (typeof value?.[field] === "string") return start(value[field], most);
  throw new EdgeInferError(`\`${name}\` has no text for the template`, "input_error", { hint: "let it read texts, hits or labels" });
}

/** @param {string} text @param {number} most @returns {string} As many characters as Python counts: those above 65,535 are one. */
function start(text, most) {
  return text.length <= most ? text : [...text].slice(0, most).join("");
}

/** @param {any[]} hits @param {number} most @param {string} separator */
function numbered(hits, most, separator) {
  /** @type {string[]} */
  const parts = [];
  let left = most;
  for (const [i, { text }] of hits.entries()) {
    const part = `[${i + 1}] ${text ?? ""}`;
    const size = [...part].length;
    if (parts.length && size > left) break;
    parts.push(start(part, most));
    left -= size + [...separator].length;
  }
  return parts.join(separator);
}

/** @param {ChainStep} step @param {Inside} inside */
function generate(step, { url, manifest = {} }) {
  if (manifest.generate === undefined) throw wrong(`chain: step \`${step.name}\` generates, and \`${manifest.name}\` generates no text`, "edge-infer convert FOLDER makes a bundle that does");
  const isChat = Boolean(manifest.generate.chat_template);
  const camel = (/** @type {string} */ name) => name.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  const options = Object.fromEntries(Object.entries({ seed: 0, ...step.parameters }).map(([name, value]) => [camel(name), value]));
  try {
    optionsOf(Object.fromEntries(Object.entries(options).filter(([name]) => !["tools", "templateValues"].includes(name))));
  } catch (error) {
    throw error instanceof EdgeInferError ? wrong(`chain: step \`${step.name}\`: ${error.message}`, error.hint) : error;
  }
  return {
    open: async (/** @type {Openers} */ openers) => {
      const generator = await openers.generate(url);
      const run = async (/** @type {Record<string, any>[]} */ values) => {
        const found = [];
        for (const { text } of values) found.push((await generator.stream(isChat ? [{ role: "user", content: text }] : text, options).result()).text);
        return found;
      };
      return { run, close: () => generator.dispose() };
    },
  };
}
