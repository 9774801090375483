/** The definition of a chain: what a bundle's manifest says in `chain`. The same refusals as `edge_infer/chains/definition.py`. */

import { EdgeInferError } from "../errors.js";
import { checked, isObject } from "../tasks/check-parameters.js";
import { didYouMean, listed } from "../tasks/words.js";
import { INPUTS, WORKS } from "./works.js";

/** @typedef {{name: string, field: string}} Reference What a step reads: an input of the chain or a step, and of tensors one of them. */
/**
 * @typedef {object} ChainStep
 * @property {string} name
 * @property {string} do What it does; one of `WORKS`.
 * @property {string} folder Where its bundle or index lies inside the chain's; empty where it has none.
 * @property {Record<string, Reference>} reads By the name of what it takes.
 * @property {Record<string, any>} parameters What `with` says.
 * @property {Record<string, any> | undefined} where The filter of a search.
 * @property {boolean} isCached
 * @property {string} server
 */
/**
 * @typedef {object} ChainDefinition
 * @property {Record<string, string>} inputs The kinds of what the caller gives.
 * @property {ChainStep[]} steps In an order in which each comes after what it reads.
 * @property {Record<string, Reference>} outputs By name; an only one without a name by an empty one.
 */

export const VERSION = 1;
/** The name under which the only thing that a step reads goes where it says no other. */
export const ONLY = "input";
const MAX_STEPS = 64;
const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const FIELDS = ["name", "do", "bundle", "index", "from", "with", "where", "cache", "server"];

/**
 * @param {any} document The manifest's `chain`.
 * @returns {ChainDefinition}
 * @throws {EdgeInferError} `manifest_error`: it is of another version or wrong; the message names the step.
 */
export function readChain(document) {
  if (document?.version !== VERSION) throw wrong(`chain: version ${JSON.stringify(document?.version)}, this edge-infer reads ${VERSION}`, "update edge-infer");
  const { inputs, steps: entries } = document;
  if (!isObject(inputs) || Object.keys(inputs).length === 0) throw wrong('chain: `inputs` is not an object of kinds, such as {"image": "image"}');
  for (const [name, kind] of Object.entries(inputs)) {
    if (!NAME.test(name)) throw wrong(`chain: the input \`${name}\` is not a name`, "letters, digits, `_` and `-`");
    if (!INPUTS.includes(/** @type {string} */ (kind))) throw wrong(`chain: the input \`${name}\` is ${JSON.stringify(kind)}; choose from ${listed(INPUTS)}`);
  }
  if (!Array.isArray(entries) || entries.length < 1 || entries.length > MAX_STEPS) throw wrong(`chain: \`steps\` is not a list of 1 to ${MAX_STEPS} steps`);
  /** @type {Map<string, ChainStep>} */
  const steps = new Map();
  entries.forEach((entry, number) => {
    const step = readStep(entry, `chain.steps[${number}]`);
    if (steps.has(step.name) || Object.hasOwn(inputs, step.name)) throw wrong(`chain: two things are called \`${step.name}\``, "rename one");
    steps.set(step.name, step);
  });
  const known = [...Object.keys(inputs), ...steps.keys()];
  for (const { name, reads } of steps.values()) for (const one of Object.values(reads)) checkName(one, known, `step \`${name}\` reads`);
  const outputs = readOutputs(document.outputs === undefined ? entries[entries.length - 1].name : document.outputs);
  for (const one of Object.values(outputs)) checkName(one, known, "the chain answers with");
  if (document.vectors !== undefined && typeof document.vectors !== "string") throw wrong("chain: `vectors` is not the path of a file");
  return { inputs: /** @type {Record<string, string>} */ (inputs), steps: inOrder(steps), outputs };
}

/** @param {Map<string, ChainStep>} steps @returns {ChainStep[]} @throws {EdgeInferError} They read one another in a circle. */
function inOrder(steps) {
  const left = new Map(steps);
  const done = [];
  const inside = (/** @type {ChainStep} */ step) => Object.values(step.reads).find(({ name }) => left.has(name));
  while (left.size) {
    const ready = [...left.values()].find((step) => !inside(step));
    if (!ready) {
      const path = [...left.keys()].slice(0, 1);
      while (path.indexOf(path[path.length - 1]) === path.length - 1) {
        path.push(/** @type {Reference} */ (inside(/** @type {ChainStep} */ (left.get(path[path.length - 1])))).name);
      }
      const circle = path.slice(path.indexOf(path[path.length - 1]));
      throw wrong(`chain: the steps read one another in a circle: ${circle.map((name) => `\`${name}\``).join(" reads ")}`, "let one of them read an input of the chain");
    }
    left.delete(ready.name);
    done.push(ready);
  }
  return done;
}

/** @param {any} entry @returns {Record<string, Reference>} */
function readOutputs(entry) {
  if (typeof entry === "string") return { "": reference(entry, "chain.outputs") };
  if (!isObject(entry) || Object.keys(entry).length === 0) throw wrong('chain: `outputs` is neither a name nor an object of names, such as {"faces": "faces"}');
  return Object.fromEntries(Object.entries(entry).map(([name, one]) => [name, reference(one, `chain.outputs['${name}']`)]));
}

/** @param {any} text @param {string} where @returns {Reference} */
function reference(text, where) {
  const dot = typeof text === "string" ? text.indexOf(".") : -1;
  const [name, field] = dot < 0 ? [text, ""] : [text.slice(0, dot), text.slice(dot + 1)];
  if (typeof name !== "string" || !NAME.test(name) || (dot >= 0 && !field)) throw wrong(`${where} is ${JSON.stringify(text)}, expected the name of an input or a step`);
  return { name, field };
}

/** @param {Reference} found @param {string[]} known @param {string} said */
function checkName({ name, field }, known, said) {
  if (known.includes(name)) return;
  throw wrong(`chain: ${said} \`${field ? `${name}.${field}` : name}\`, which is not there`, didYouMean(name, known) || `there is ${listed(known)}`);
}

/** @param {any} entry @param {string} place @returns {ChainStep} */
function readStep(entry, place) {
  if (!isObject(entry)) throw wrong(`${place} is not an object`);
  const { name, do: work, cache = false, server = "", with: given = {}, where } = /** @type {Record<string, any>} */ (entry);
  if (typeof name !== "string" || !NAME.test(name)) throw wrong(`${place}: \`name\` is ${JSON.stringify(name)}, expected letters, digits, \`_\` and \`-\``);
  const at = `chain: step \`${name}\``;
  for (const field of Object.keys(entry)) if (!FIELDS.includes(field)) throw wrong(`${at} has the field \`${field}\``, didYouMean(field, FIELDS) || `it may have ${listed(FIELDS)}`);
  if (!Object.hasOwn(WORKS, work)) throw wrong(`${at} does ${JSON.stringify(work)}, which this edge-infer cannot`, didYouMean(String(work), Object.keys(WORKS)) || `choose from ${listed(Object.keys(WORKS))}`);
  const { holds, parameters } = WORKS[work];
  if (typeof cache !== "boolean") throw wrong(`${at}: \`cache\` is ${JSON.stringify(cache)}, expected true or false`);
  if (typeof server !== "string" || (server && !server.includes("/v2/models/"))) throw wrong(`${at}: \`server\` is ${JSON.stringify(server)}, expected http://HOST/v2/models/NAME`);
  if (server && !["model", "tensors"].includes(work)) throw wrong(`${at} does \`${work}\`, which no server does for it`, "leave `server` out");
  if (!isObject(given)) throw wrong(`${at}: \`with\` is not an object`);
  if (where !== undefined && (work !== "search" || !isObject(where))) throw wrong(`${at}: \`where\` is a filter of a search, an object`);
  return {
    name,
    do: work,
    folder: folderOf(entry, holds, at),
    reads: readFrom(entry.from, work, at),
    parameters: parameters === null ? { ...given } : checked(given, parameters, at),
    where,
    isCached: cache,
    server,
  };
}

/** @param {Record<string, any>} entry @param {string} holds @param {string} at @returns {string} */
function folderOf(entry, holds, at) {
  for (const field of ["bundle", "index"]) {
    if (field in entry !== (field === holds)) throw wrong(`${at} ${field === holds ? `lacks \`${field}\`` : `has \`${field}\`, which it does not take`}`);
  }
  if (!holds) return "";
  const path = entry[holds];
  if (typeof path !== "string") throw wrong(`${at}: \`${holds}\` is ${JSON.stringify(path)}, expected a folder inside the chain`);
  if (/[\\:\0]/.test(path) || path.split("/").some((part) => ["", ".", ".."].includes(part))) throw wrong(`${at}: \`${holds}\`: path '${path}' leaves the bundle or is not plain`);
  return path;
}

/** @param {any} entry @param {string} work @param {string} at @returns {Record<string, Reference>} */
function readFrom(entry, work, at) {
  const { takes } = WORKS[work];
  const names = Object.keys(takes);
  const found = typeof entry === "string" ? { [names.length === 1 && !("*" in takes) ? names[0] : ONLY]: entry } : entry;
  if (!isObject(found) || Object.keys(found).length === 0) throw wrong(`${at}: \`from\` is neither a name nor an object of names`);
  return Object.fromEntries(Object.entries(found).map(([name, one]) => [name, reference(one, `${at}: \`from\``)]));
}

/** @param {string} message @param {string} [hint] */
export function wrong(message, hint = "build the chain again: edge-infer chain") {
  return new EdgeInferError(message, "manifest_error", { hint });
}
