/** What a chain's steps can do: what each takes, gives and may be told. A test compares it with `edge_infer/chains/kinds.py`. */

/** @typedef {import("../tasks/parameters.js").Declared} Declared */
/** @typedef {{name: string, depth: number}} Kind The kind of a value: one of it, a list, a list of lists, ... */
/**
 * @typedef {object} Work What one `do` of a step means.
 * @property {Record<string, string>} takes The kinds of what it is fed, by name; `*` for any further names.
 * @property {string} gives The kind of what it makes; empty where the bundle decides.
 * @property {string[]} optional The names that may be left out; one of them has to be there.
 * @property {number} depth 1 where it makes a list of each.
 * @property {string} holds What it has in the chain's bundle: `bundle`, `index` or nothing.
 * @property {Record<string, Declared> | null} parameters What `with` may say; null where the bundle decides.
 */

/** What the caller of a chain can give. */
export const INPUTS = ["image", "sound", "text", "tensor"];

/** @type {Record<string, Work>} */
export const WORKS = {
  model: { takes: {}, gives: "", optional: [], depth: 0, holds: "bundle", parameters: null },
  tensors: { takes: { "*": "tensor" }, gives: "tensors", optional: [], depth: 0, holds: "bundle", parameters: {} },
  crop: {
    takes: { image: "image", boxes: "boxes" },
    gives: "image",
    optional: [],
    depth: 1,
    holds: "",
    parameters: {
      margin: { kind: "real", default: 0, low: 0, high: 4 },
      label: { kind: "text", default: null },
      min_score: { kind: "real", default: 0, low: 0, high: 1 },
      most: { kind: "whole", default: 64, low: 1, high: 10_000 },
    },
  },
  cut: {
    takes: { sound: "sound", segments: "segments" },
    gives: "sound",
    optional: [],
    depth: 1,
    holds: "",
    parameters: { margin_ms: { kind: "real", default: 0, low: 0, high: 60_000 }, most: { kind: "whole", default: 256, low: 1, high: 10_000 } },
  },
  search: {
    takes: { vector: "tensor", text: "text" },
    gives: "hits",
    optional: ["vector", "text"],
    depth: 0,
    holds: "index",
    parameters: {
      k: { kind: "whole", default: 10, low: 1, high: 10_000 },
      mode: { kind: "choice", default: "vectors", choices: ["vectors", "words", "hybrid"] },
      full_scan: { kind: "flag", default: false },
    },
  },
  rank: {
    takes: { query: "text", hits: "hits" },
    gives: "hits",
    optional: [],
    depth: 0,
    holds: "bundle",
    parameters: { most: { kind: "whole", default: 10, low: 1, high: 10_000 } },
  },
  prompt: {
    takes: { "*": "" },
    gives: "text",
    optional: [],
    depth: 0,
    holds: "",
    parameters: {
      template: { kind: "text" },
      separator: { kind: "text", default: "\n\n" },
      max_characters: { kind: "whole", default: 4000, low: 1, high: 1_000_000 },
    },
  },
  generate: { takes: { text: "text" }, gives: "text", optional: [], depth: 0, holds: "bundle", parameters: null },
};
