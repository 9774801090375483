/** Bundles that feed one another, in the page: what `openChain` of `index.js` makes. The same answers as `edge_infer.Chain`. */

import { EdgeInferError } from "../errors.js";
import { fetchFile, openBundle } from "../bundle/bundle.js";
import { sha256 } from "../fetch/sha256.js";
import { Shared, common } from "../tasks/shared.js";
import { didYouMean, listed } from "../tasks/words.js";
import { sizeOf } from "../tensors.js";
import { IN_MEMORY, digest } from "./cache.js";
import { readChain, wrong } from "./definition.js";
import { gather, spread } from "./spread.js";
import { describe } from "./steps.js";
import { WORKS } from "./works.js";

/** @typedef {import("./definition.js").ChainDefinition} ChainDefinition */
/** @typedef {import("./definition.js").ChainStep} ChainStep */
/** @typedef {import("./steps.js").Described} Described */
/** @typedef {import("./steps.js").Doing} Doing */
/** @typedef {import("./steps.js").Openers} Openers */
/** @typedef {import("./works.js").Kind} Kind */
/** @typedef {import("./cache.js").StepCache} StepCache */
/** @typedef {{name: string, ms: number, values: number, cached: number}} StepTiming What a step of a run took, for all inputs together. */
/** @typedef {{answer: any, timings: StepTiming[], spared: number}} ChainRun */

export class Chain {
  /**
   * @param {string} name
   * @param {ChainDefinition} definition
   * @param {{described: Described, doing: Doing, depths: Record<string, number>}[]} steps
   * @param {Record<string, Kind>} kinds
   * @param {StepCache} cache
   */
  constructor(name, definition, steps, kinds, cache) {
    this.name = name;
    this.definition = definition;
    /** The kinds of what the caller gives, by name. */
    this.inputs = definition.inputs;
    this.parts = steps;
    this.kinds = kinds;
    this.cache = cache;
    this.common = common(steps.map(({ doing }) => doing.beginnings ?? []));
  }

  /**
   * Open a chain: everything is checked by name and kind before a model is loaded.
   *
   * @param {string} url
   * @param {Openers} openers
   * @param {{cache?: StepCache, signal?: AbortSignal}} [options]
   * @returns {Promise<Chain>}
   */
  static async open(url, openers, { cache = IN_MEMORY, signal } = {}) {
    const place = url.replace(/\/$/, "");
    const { apiKey } = openers;
    const { manifest, revision } = await openBundle(place, { signal, apiKey });
    if (manifest.chain === undefined) throw new EdgeInferError(`\`${manifest.name}\` is not a chain`, "unsupported", { hint: "load(url), pipeline(url)" });
    const definition = readChain(manifest.chain);
    /** @type {Record<string, Kind>} */
    const kinds = Object.fromEntries(Object.entries(definition.inputs).map(([name, kind]) => [name, { name: kind, depth: 0 }]));
    /** @type {{described: Described, depths: Record<string, number>}[]} */
    const steps = [];
    for (const step of definition.steps) {
      const described = describe(step, await insideOf(step, place, manifest, { signal, apiKey }));
      const { kind, depths } = kindOf(described, kinds);
      kinds[step.name] = kind;
      if (step.do === "search") checkVectors(described, steps.map((one) => one.described));
      steps.push({ described, depths });
    }
    for (const { name, field } of Object.values(definition.outputs)) {
      if (field && kinds[name].name !== "tensors") throw wrong(`chain: it answers with \`${name}.${field}\`, and \`${name}\` gives ${shown(kinds[name])}`, `answer with \`${name}\``);
    }
    const opened = [];
    const once = onlyOnce(openers);
    try {
      for (const one of steps) opened.push({ ...one, doing: await one.described.open(once.openers) });
    } catch (error) {
      await once.close();
      throw error;
    }
    return new Chain(`${manifest.name}@${revision.slice(0, 6)}`, definition, opened, kinds, cache);
  }

  /** @returns {string[]} The names of the steps in the order in which they run. */
  get steps() {
    return this.parts.map(({ described }) => described.step.name);
  }

  /**
   * Answer, and tell what each step took.
   *
   * @param {any} inputs Of one input its value, of several an object of them by name; or a list, whose members are answered together.
   * @returns {Promise<ChainRun>}
   * @throws {EdgeInferError} `input_error`: an input lacks, is unknown, or is not what a step takes; the message names the step.
   */
  async run(inputs) {
    const isList = this.#isList(inputs);
    const given = (isList ? inputs : [inputs]).map((/** @type {any} */ one) => this.#named(one));
    /** @type {Record<string, any[]>} */
    const values = {};
    for (const [name, kind] of Object.entries(this.inputs)) {
      values[name] = await Promise.all(given.map((/** @type {any} */ one) => readInput(name, kind, one[name])));
    }
    const shared = new Shared(this.common);
    /** @type {StepTiming[]} */
    const timings = [];
    for (const part of given.length ? this.parts : []) {
      const { name } = part.described.step;
      const begin = performance.now();
      try {
        const { made, count, cached } = await this.#made(part, values, shared);
        values[name] = made;
        timings.push({ name, ms: performance.now() - begin, values: count, cached });
      } catch (error) {
        if (error instanceof EdgeInferError) error.message = `step \`${name}\`: ${error.message}`;
        throw error;
      }
    }
    const answers = given.map((/** @type {any} */ _, /** @type {number} */ row) => this.#answer(values, row));
    return { answer: isList ? answers : answers[0], timings, spared: shared.spared };
  }

  /** @param {any} inputs As `run` takes them. @returns {Promise<any>} The answer alone. */
  async answer(inputs) {
    return (await this.run(inputs)).answer;
  }

  /** Give the memory of all models back. */
  async dispose() {
    await Promise.all(this.parts.map(({ doing }) => doing.close?.()));
  }

  /**
   * @param {{described: Described, doing: Doing, depths: Record<string, number>}} part
   * @param {Record<string, any[]>} values
   * @param {Shared} shared
   */
  async #made({ described, doing, depths }, values, shared) {
    const { step } = described;
    const read = Object.fromEntries(Object.entries(step.reads).map(([name, { name: from, field }]) => [name, values[from].map((one) => partOf(one, depths[name], field))]));
    const deeper = Object.fromEntries(Object.entries(depths).map(([name, depth]) => [name, depth + 1]));
    const { single, shape } = spread(read, deeper, step.name);
    const keys = step.isCached ? await Promise.all(single.map((one) => keyOf(described, one))) : single.map(() => null);
    const results = new Array(single.length);
    /** @type {number[]} */
    const wanted = [];
    /** @type {Map<string, number>} */
    const first = new Map();
    keys.forEach((key, i) => {
      const kept = key === null ? undefined : this.cache.get(key);
      if (kept) results[i] = kept.value;
      else if (key === null || !first.has(key)) {
        wanted.push(i);
        if (key !== null) first.set(key, i);
      }
    });
    const made = wanted.length ? await doing.run(wanted.map((i) => single[i]), shared) : [];
    wanted.forEach((i, at) => {
      results[i] = made[at];
      const key = keys[i];
      if (key !== null) this.cache.put(key, made[at]);
    });
    keys.forEach((key, i) => {
      if (key !== null && first.has(key)) results[i] = results[/** @type {number} */ (first.get(key))];
    });
    return { made: gather(shape, results), count: single.length, cached: single.length - wanted.length };
  }

  /** @param {Record<string, any[]>} values @param {number} row */
  #answer(values, row) {
    const found = Object.entries(this.definition.outputs).map(([name, ref]) => [name, partOf(values[ref.name][row], this.kinds[ref.name].depth, ref.field)]);
    return found.length === 1 && found[0][0] === "" ? found[0][1] : Object.fromEntries(found);
  }

  /** @param {any} inputs */
  #isList(inputs) {
    const kinds = Object.values(this.inputs);
    return Array.isArray(inputs) && !(kinds.length === 1 && ["sound", "tensor"].includes(kinds[0]) && typeof inputs[0] === "number");
  }

  /** @param {any} given @returns {Record<string, any>} @throws {EdgeInferError} A name lacks or is unknown. */
  #named(given) {
    const names = Object.keys(this.inputs);
    const isObject = given !== null && typeof given === "object" && Object.getPrototypeOf(given) === Object.prototype;
    if (!isObject || (names.length === 1 && Object.keys(given).join() !== names[0])) {
      if (names.length > 1) throw new EdgeInferError(`the chain takes ${listed(names)}, and one value is given`, "input_error", { hint: `{ ${names.join(", ")} }` });
      return { [names[0]]: given };
    }
    for (const name of Object.keys(given)) if (!names.includes(name)) throw new EdgeInferError(`the chain takes no \`${name}\``, "input_error", { hint: didYouMean(name, names) || `it takes ${listed(names)}` });
    for (const name of names) if (!(name in given)) throw new EdgeInferError(`the chain's input \`${name}\` is not given`, "input_error", { hint: `it takes ${listed(names)}` });
    return given;
  }
}

/**
 * Check that the vector of a search is made by the model that the index was built by, and as it was.
 *
 * @param {Described} described
 * @param {Described[]} others The steps before it.
 * @throws {EdgeInferError} `manifest_error`: it is not.
 */
function checkVectors({ step, catalogue }, others) {
  const find = (/** @type {string} */ name) => others.find((one) => one.step.name === name);
  const [maker, embedding] = [find(step.reads.vector?.name), catalogue?.embedding];
  if (!maker?.manifest || !embedding) return;
  if (maker.revision !== embedding.revision) {
    throw wrong(
      `chain: step \`${step.name}\`: the index was built by revision ${embedding.revision.slice(0, 12)} of \`${embedding.name}\`, and \`${maker.step.name}\` is ${maker.revision?.slice(0, 12)}`,
      "use the bundle that the index was built by, or build the index again",
    );
  }
  const prefix = embedding.query_prefix ?? "";
  const readers = Object.values(maker.step.reads).map(({ name }) => find(name));
  if (prefix && !readers.some((one) => one?.step.do === "prompt" && one.step.parameters.template.startsWith(prefix))) {
    throw wrong(`chain: step \`${step.name}\`: queries of the index begin with '${prefix}', and not those here`, `a step {"do": "prompt", "with": {"template": "${prefix}{text}"}} before it`);
  }
}

/**
 * @param {Openers} openers
 * @returns {{openers: Openers, close: () => Promise<unknown>}} The same, which open what two steps share once: what a server computes
 *   is apart from what is computed here. `close` gives back all that was opened.
 */
function onlyOnce(openers) {
  /** @type {Map<string, Promise<any>>} */
  const known = new Map();
  const once = (/** @type {"load" | "pipeline" | "openIndex" | "generate"} */ name) => (/** @type {string} */ url, server = "") => {
    const key = `${name} ${server} ${url}`;
    if (!known.has(key)) known.set(key, openers[name](url));
    return /** @type {Promise<any>} */ (known.get(key));
  };
  return {
    openers: { load: once("load"), pipeline: once("pipeline"), openIndex: once("openIndex"), generate: once("generate"), apiKey: openers.apiKey },
    close: () => Promise.allSettled([...known.values()].map(async (one) => (await one).dispose?.())),
  };
}

/**
 * Read the manifest of a step's bundle, or the catalogue of its index, checked by the chain's own manifest.
 *
 * @param {ChainStep} step
 * @param {string} place
 * @param {any} manifest
 * @param {{signal?: AbortSignal, apiKey?: string}} options
 * @returns {Promise<import("./steps.js").Inside>}
 */
async function insideOf(step, place, manifest, options) {
  const { holds } = WORKS[step.do];
  if (!holds) return { url: place, revision: "" };
  const file = `${step.folder}/${holds === "bundle" ? "manifest.json" : "index.json"}`;
  if (!manifest.files.some((/** @type {any} */ { path }) => path === file)) throw wrong(`chain: step \`${step.name}\`: there is no ${holds} \`${step.folder}\` in the chain`);
  const url = `${place}/${step.folder}`;
  const { bytes } = await fetchFile(new URL(place, globalThis.location?.href), manifest, file, options);
  const document = JSON.parse(new TextDecoder().decode(bytes));
  if (holds === "index") return { url, revision: await sha256(bytes), catalogue: document };
  if (document.chain !== undefined) throw wrong(`chain: step \`${step.name}\`: \`${step.folder}\` is a chain itself`, "write its steps into this chain");
  return { url, revision: await sha256(bytes), manifest: document };
}

/** @param {Kind} kind */
function shown({ name, depth }) {
  return name + "[]".repeat(depth);
}

/**
 * @param {Described} described
 * @param {Record<string, Kind>} kinds
 * @returns {{kind: Kind, depths: Record<string, number>}} The kind of what it makes, and how deep the lists are that it reads.
 * @throws {EdgeInferError} `manifest_error`: it reads too little, something that it does not take, or something of another kind.
 */
export function kindOf({ step, takes, optional, gives }, kinds) {
  const at = `chain: step \`${step.name}\` (${step.do})`;
  const names = Object.keys(takes).filter((name) => name !== "*");
  /** @type {Record<string, number>} */
  const depths = {};
  for (const [name, { name: from, field }] of Object.entries(step.reads)) {
    if (!(name in takes) && !("*" in takes)) throw wrong(`${at} takes no \`${name}\``, `it takes ${listed(names)}`);
    const wanted = takes[name] ?? takes["*"];
    let found = kinds[from];
    if (field) {
      if (found.name !== "tensors") throw wrong(`${at} reads \`${from}.${field}\`, and \`${from}\` gives ${shown(found)}, which has no parts`, `read \`${from}\``);
      found = { name: "tensor", depth: found.depth };
    }
    if (wanted && found.name !== wanted) throw wrong(`${at} takes ${wanted} as \`${name}\`, and \`${field ? `${from}.${field}` : from}\` gives ${shown(found)}`, `let it read what gives ${wanted}`);
    depths[name] = found.depth;
  }
  if (optional.length) {
    if (!optional.some((name) => name in step.reads)) throw wrong(`${at} reads none of ${listed(optional)}`);
  } else {
    for (const name of names) if (!(name in step.reads)) throw wrong(`${at} lacks \`${name}\` in \`from\``, `it takes ${listed(names)}`);
  }
  return { kind: { name: gives.name, depth: Math.max(0, ...Object.values(depths)) + gives.depth }, depths };
}

/** @param {any} value @param {number} depth @param {string} field @returns {any} One output of each model's tensors; without a field the value itself. */
function partOf(value, depth, field) {
  if (!field) return value;
  if (depth) return value.map((/** @type {any} */ one) => partOf(one, depth - 1, field));
  if (!(field in value)) throw new EdgeInferError(`there is no output \`${field}\``, "input_error", { hint: `the model gives ${listed(Object.keys(value).sort())}` });
  return value[field];
}

/** @param {Described} described @param {Record<string, any>} read @returns {Promise<string | null>} */
async function keyOf(described, read) {
  const digests = await Promise.all(Object.entries(read).map(async ([name, value]) => [name, await digest(value)]));
  if (digests.some(([, one]) => one === null)) return null;
  return sha256(new TextEncoder().encode(JSON.stringify([described.identity, described.step.server, digests.sort()])));
}

/** @param {string} name @param {string} kind @param {any} value @returns {Promise<any>} A file's bytes in the place of its address. */
async function readInput(name, kind, value) {
  if (kind === "text" && typeof value !== "string") throw new EdgeInferError(`\`${name}\` is ${typeof value}, expected a text`, "input_error", { hint: "give a text" });
  if (kind === "tensor" && Array.isArray(value)) {
    const [data, shape] = [Float32Array.from(value.flat(Infinity)), shapeOf(value)];
    if (data.length !== sizeOf(shape)) throw new EdgeInferError(`\`${name}\` has lists of different lengths`, "input_error", { hint: "give rows of one length" });
    return { data, dtype: "float32", shape };
  }
  if (kind === "tensor" && value instanceof Float32Array) return { data: value, dtype: "float32", shape: [value.length] };
  if (kind !== "image" && kind !== "sound") return value;
  // Its bytes, not its address: what lies there may change, and a cache would not see it.
  if (typeof value === "string" || value instanceof URL) {
    const { fetched } = kind === "image" ? await import("../tasks/image/pixels.js") : await import("../tasks/audio/decode.js");
    const found = await fetched(String(value));
    return found instanceof Blob ? new Uint8Array(await found.arrayBuffer()) : found;
  }
  if (typeof Blob !== "undefined" && value instanceof Blob) return new Uint8Array(await value.arrayBuffer());
  return value;
}

/** @param {any} value @returns {number[]} */
function shapeOf(value) {
  return Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [];
}
