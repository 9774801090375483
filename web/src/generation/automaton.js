/** A pushdown automaton over bytes: which bytes may follow, where a grammar nests. The same as `edge_infer.generation.automaton`. */

import { EdgeInferError } from "../errors.js";

/** Ways in which a text may be read at once. */
const MAX_WAYS = 512;

/** One byte of a set. */
export class Bytes {
  /** @param {Iterable<number>} values */
  constructor(values) {
    this.has = new Uint8Array(256);
    for (const value of values) this.has[value] = 1;
  }
}

/** Parts one after the other. */
export class Series {
  /** @param {Node[]} parts */
  constructor(...parts) {
    this.parts = parts;
  }
}

/** One of several parts. */
export class Choice {
  /** @param {Node[]} parts */
  constructor(...parts) {
    this.parts = parts;
  }
}

/** A part several times; with a most of infinity, any number of times. */
export class Repeat {
  /** @type {Repeat | undefined} */
  #less;

  /** @param {Node} part @param {number} [least] @param {number} [most] */
  constructor(part, least = 0, most = Infinity) {
    this.part = part;
    this.least = least;
    this.most = most;
  }

  /** @returns {Repeat} What may follow once the part was there. */
  afterOne() {
    if (this.least === 0 && this.most === Infinity) return this;
    this.#less ??= new Repeat(this.part, Math.max(this.least - 1, 0), this.most - 1);
    return this.#less;
  }
}

/** A part that is made when it is first reached, so that a grammar may hold itself. */
export class Later {
  /** @type {Node | undefined} */
  #made;
  #make;

  /** @param {() => Node} make */
  constructor(make) {
    this.#make = make;
  }

  /** @returns {Node} */
  made() {
    this.#made ??= this.#make();
    return this.#made;
  }
}

/** @typedef {Bytes | Series | Choice | Repeat | Later} Node A part of a grammar. */
/** @typedef {ReadonlySet<Stack>} State Ways to go on: each begins with one byte of a set, or is the end. None where the text does not fit. */

/** @param {string} text @returns {Node} The part that is this text in UTF-8. */
export function literal(text) {
  return new Series(...Array.from(new TextEncoder().encode(text), (byte) => new Bytes([byte])));
}

/** What is expected: a part, and then the rest. Equal stacks are one object. */
class Stack {
  /** @type {Map<Node, Stack>} */
  #under = new Map();

  /** @param {Node | null} node Null at the end of the text. @param {Stack | null} rest */
  constructor(node, rest) {
    this.node = node;
    this.rest = rest;
  }

  /** @param {Node} node @returns {Stack} This stack with a part before it. */
  over(node) {
    let found = this.#under.get(node);
    if (!found) this.#under.set(node, (found = new Stack(node, this)));
    return found;
  }
}

/** Reads bytes by a grammar. */
export class Automaton {
  #end = new Stack(null, null);

  /** @param {Node} root The grammar. */
  constructor(root) {
    /** @type {State} */
    this.start = this.#opened([this.#end.over(root)]);
  }

  /**
   * @param {State} state
   * @param {Uint8Array} data
   * @returns {State} The state after these bytes.
   * @throws {EdgeInferError} `execution_error`: the text can be read in too many ways.
   */
  after(state, data) {
    for (const byte of data) {
      /** @type {Stack[]} */
      const rests = [];
      for (const { node, rest } of state) if (rest && node instanceof Bytes && node.has[byte]) rests.push(rest);
      if (rests.length === 0) return new Set();
      state = this.#opened(rests);
    }
    return state;
  }

  /** @param {State} state @returns {boolean} Whether the text may be complete. */
  mayEnd(state) {
    return state.has(this.#end);
  }

  /** @param {State} state @returns {boolean} Whether nothing may follow. */
  mustEnd(state) {
    return state.size === 1 && this.mayEnd(state);
  }

  /** @param {Stack[]} waiting @returns {State} Parts followed down to the bytes that they begin with. */
  #opened(waiting) {
    /** @type {Set<Stack>} */
    const found = new Set();
    /** @type {Set<Stack>} */
    const seen = new Set();
    for (let stack = waiting.pop(); stack; stack = waiting.pop()) {
      if (seen.has(stack)) continue;
      seen.add(stack);
      if (seen.size > 16 * MAX_WAYS || found.size > MAX_WAYS) {
        throw new EdgeInferError(`the answer can be read by its schema in more than ${MAX_WAYS} ways`, "execution_error", {
          hint: "use fewer alternatives that begin alike",
        });
      }
      const { node } = stack;
      let { rest } = stack;
      if (!rest || node instanceof Bytes) found.add(stack);
      else if (node instanceof Series) {
        for (let i = node.parts.length - 1; i >= 0; i--) rest = rest.over(node.parts[i]);
        waiting.push(rest);
      } else if (node instanceof Choice) for (const part of node.parts) waiting.push(rest.over(part));
      else if (node instanceof Later) waiting.push(rest.over(node.made()));
      else if (node instanceof Repeat) {
        if (node.least === 0) waiting.push(rest);
        if (node.most > 0) waiting.push(rest.over(node.afterOne()).over(node.part));
      }
    }
    return found;
  }
}
