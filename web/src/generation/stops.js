/** Stop strings in a text that arrives in pieces. The same as `edge_infer.generation.stops`. */

import { EdgeInferError } from "../errors.js";

/** Characters of all stop strings of one generation together. */
const MAX_CHARACTERS = 65_536;

/**
 * @typedef {object} Node A prefix of stop strings.
 * @property {Map<string, Node>} next
 * @property {Node | null} shorter The longest other prefix that this one ends with.
 * @property {number} depth
 * @property {number} length Of the longest stop string that this prefix ends with; 0 for none.
 */

/**
 * Looks for strings in a text that arrives in pieces, and holds back what may become one: one pass over the text by the
 * automaton of Aho and Corasick (1975), however many strings there are. It counts in UTF-16 units.
 */
export class Stops {
  #root;
  #at;
  #held = "";

  /**
   * @param {readonly string[]} strings
   * @throws {EdgeInferError} `input_error`: they have more than 65,536 characters together.
   */
  constructor(strings) {
    const count = strings.reduce((sum, one) => sum + Array.from(one).length, 0);
    if (count > MAX_CHARACTERS) {
      throw new EdgeInferError(`\`stop\` has ${count} characters in all, at most ${MAX_CHARACTERS} are allowed`, "input_error", { details: { option: "stop" } });
    }
    this.#root = this.#at = automaton(strings);
  }

  /**
   * Take the next piece; after a stop string nothing more may be added.
   *
   * @param {string} text
   * @returns {{text: string, isStopped: boolean}} What no later text can make a part of a stop string, and whether one follows.
   */
  add(text) {
    const held = this.#held + text;
    if (this.#root.next.size === 0) return { text: held, isStopped: false };
    let node = this.#at;
    for (let at = this.#held.length; at < held.length; at++) {
      const unit = held[at];
      while (!node.next.has(unit) && node.shorter) node = node.shorter;
      node = node.next.get(unit) ?? this.#root;
      if (node.length > 0) {
        this.#held = "";
        return { text: held.slice(0, at + 1 - node.length), isStopped: true };
      }
    }
    this.#at = node;
    const certain = held.length - node.depth;
    this.#held = held.slice(certain);
    return { text: held.slice(0, certain), isStopped: false };
  }

  /** @returns {string} What was held back, once the text has ended. */
  flush() {
    const held = this.#held;
    [this.#held, this.#at] = ["", this.#root];
    return held;
  }
}

/** @param {number} depth @returns {Node} */
function nodeOf(depth) {
  return { next: new Map(), shorter: null, depth, length: 0 };
}

/** @param {readonly string[]} strings @returns {Node} Its root. */
function automaton(strings) {
  const root = nodeOf(0);
  for (const string of strings) {
    let node = root;
    for (let i = 0; i < string.length; i++) {
      const known = node.next.get(string[i]) ?? nodeOf(i + 1);
      node.next.set(string[i], known);
      node = known;
    }
    node.length = string.length;
  }
  const waiting = [...root.next.values()];
  for (const node of waiting) node.shorter = root;
  for (const node of waiting) {
    for (const [unit, child] of node.next) {
      let shorter = node.shorter;
      while (shorter && !shorter.next.has(unit)) shorter = shorter.shorter;
      child.shorter = shorter?.next.get(unit) ?? root;
      child.length ||= child.shorter.length;
      waiting.push(child);
    }
  }
  return root;
}
