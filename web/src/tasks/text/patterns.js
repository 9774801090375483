/** Patterns of a tokenizer, written for Oniguruma, run by `RegExp`. The same reader as `patterns.py`. */

import { unsupported } from "./definition.js";
import { LAST, complement, ranges, set, union, writeClass } from "./unicode-table.js";

/** @typedef {import("./unicode-table.js").Ranges} Ranges */
/** @typedef {[number, number]} Span */
/** @typedef {{text: string, least: number, open: number, isBranching: boolean}} Shape */

const [MAX_CHARACTERS, MAX_DEPTH, MAX_OPEN] = [20_000, 16, 4];
/** @type {Record<string, number>} */
const ESCAPED = { n: 10, t: 9, r: 13, f: 12, v: 11, a: 7, e: 27 };
/** @type {Record<string, string>} */
const CLASSES = { s: "regex_space", w: "regex_word", d: "Nd" };
const CODE = /\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\})/y;
const PROPERTY = /\\[pP]\{(\^?)([A-Za-z_]+)\}/y;
const QUANTIFIER = /[*+?]|\{\d*,\d*\}|\{\d+\}/y;
const GROUP = /\((?!\?)|\(\?(?:(?:i|-i)?:|[=!>]|<[=!])/y;
/** The pattern of GPT-2 (https://github.com/openai/gpt-2, src/encoder.py), which the part ByteLevel splits by. */
export const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** @param {number} code */
const literal = (code) => `\\u{${code.toString(16)}}`;

/** Reads one pattern. */
class Reader {
  #at = 0;
  #groups = 0;
  #ignoresCase = false;

  /** @param {string} source @param {string} where */
  constructor(source, where) {
    this.source = source;
    this.where = where;
  }

  /** @returns {Shape} */
  read() {
    if (this.source.startsWith("(?i)")) {
      this.#at = 4;
      this.#ignoresCase = true;
    }
    const shape = this.#alternatives(0);
    if (this.#at < this.source.length) throw this.#refused("an unpaired `)`");
    return shape;
  }

  /** @param {string} what */
  #refused(what) {
    return unsupported(`\`${this.where}\``, `${what} in the pattern \`${this.source.slice(0, 80)}\``);
  }

  /** @param {RegExp} sticky @param {number} [at] */
  #match(sticky, at = this.#at) {
    sticky.lastIndex = at;
    return sticky.exec(this.source);
  }

  /** @returns {string} The character here, a pair of surrogates as one. */
  #here() {
    return String.fromCodePoint(this.source.codePointAt(this.#at) ?? 0);
  }

  /** @param {number} depth @returns {Shape} */
  #alternatives(depth) {
    if (depth > MAX_DEPTH) throw this.#refused("such deep nesting");
    const found = [this.#sequence(depth)];
    while (this.source[this.#at] === "|") {
      this.#at += 1;
      found.push(this.#sequence(depth));
    }
    return {
      text: found.map((one) => one.text).join("|"),
      least: Math.min(...found.map((one) => one.least)),
      open: Math.max(...found.map((one) => one.open)),
      isBranching: found.length > 1 || found[0].isBranching,
    };
  }

  /** @param {number} depth @returns {Shape} */
  #sequence(depth) {
    const found = { text: "", least: 0, open: 0, isBranching: false };
    while (this.#at < this.source.length && !"|)".includes(this.source[this.#at])) {
      const one = this.#quantified(this.#atom(depth));
      found.text += one.text;
      found.least += one.least;
      found.open += one.open;
      found.isBranching ||= one.isBranching;
    }
    if (found.open > MAX_OPEN) throw this.#refused("a row of so many open quantifiers");
    return found;
  }

  /** @param {Shape} atom @returns {Shape} */
  #quantified(atom) {
    const found = this.#match(QUANTIFIER)?.[0];
    if (found === undefined || found === "{,}") return atom;
    this.#at += found.length;
    const inside = found.replaceAll(/[{}]/g, "").split(",");
    let [least, most] = [inside[0], inside[1] ?? inside[0]];
    if ("*+?".includes(found)) [least, most] = [found === "+" ? "1" : "0", found === "?" ? "1" : ""];
    let behind = this.source[this.#at] ?? "";
    if ((behind === "?" || behind === "+") && ("*+?".includes(found) || (behind === "?" && found.includes(",")))) this.#at += 1;
    else if (this.#match(QUANTIFIER)) throw this.#refused(`\`${found}${behind}\``);
    else behind = "";
    const isRepeated = most === "" || Number(most) > 1;
    const isFixed = least === most;
    if (isRepeated && (atom.open || atom.isBranching)) throw this.#refused("a quantifier inside a quantifier");
    if (Math.max(Number(least), Number(most)) * Math.max(atom.least, 1) > 1000) throw this.#refused(`\`${found}\``);
    const written = found.startsWith("{,") ? `{0,${most}}` : found;
    let text = atom.text + written + (behind === "+" ? "" : behind);
    if (behind === "+") {
      this.#groups += 1; // possessive: what a look-ahead has taken is not given back
      text = `(?:(?=(${text}))\\${this.#groups})`;
    }
    return {
      text,
      least: atom.least * Number(least),
      open: atom.open + (isRepeated && !isFixed ? 1 : 0),
      isBranching: atom.isBranching || !isFixed,
    };
  }

  /** @param {number} depth @returns {Shape} */
  #atom(depth) {
    const character = this.source[this.#at];
    if (character === "(") return this.#group(depth);
    if (character === "[") {
      this.#at += 1;
      return plain(this.#written(this.#class(depth)), 1);
    }
    if (character === "\\") return this.#escape();
    if ("*+?".includes(character)) throw this.#refused(`\`${character}\` behind nothing`);
    if (character === "^" || character === "$" || character === ".") {
      this.#at += 1;
      if (character === ".") return plain("[^\\n]", 1);
      return plain(character === "^" ? "(?:(?<![^])|(?<=\\n)(?=[^]))" : "(?=\\n|(?![^]))", 0);
    }
    const code = /** @type {number} */ (this.#member());
    return plain(this.#ignoresCase ? this.#written([[code, code]]) : literal(code), 1);
  }

  /** @param {number} depth @returns {Shape} */
  #group(depth) {
    const found = this.#match(GROUP)?.[0];
    if (found === undefined) throw this.#refused(`\`${this.source.slice(this.#at, this.#at + 4)}\``);
    this.#at += found.length;
    const outside = this.#ignoresCase;
    if (found === "(?i:") this.#ignoresCase = true;
    if (found === "(?-i:") this.#ignoresCase = false;
    const isAtomic = found === "(?>";
    const number = isAtomic ? (this.#groups += 1) : 0;
    const inside = this.#alternatives(depth + 1);
    this.#ignoresCase = outside;
    if (this.source[this.#at] !== ")") throw this.#refused("an unpaired `(`");
    this.#at += 1;
    if (isAtomic) return { ...inside, text: `(?:(?=(${inside.text}))\\${number})` };
    const isLook = "=!".includes(found[found.length - 1]);
    return { ...inside, text: `${isLook ? found : "(?:"}${inside.text})`, least: isLook ? 0 : inside.least };
  }

  /** @returns {Shape} */
  #escape() {
    const letter = this.source[this.#at + 1] ?? "";
    const word = writeClass(set("regex_word"));
    /** @type {Record<string, string>} */
    const edges = {
      A: "(?<![^])",
      z: "(?![^])",
      Z: "(?=\\n?(?![^]))",
      b: `(?:(?<=${word})(?!${word})|(?<!${word})(?=${word}))`,
      B: `(?:(?<=${word})(?=${word})|(?<!${word})(?!${word}))`,
    };
    if (letter && Object.hasOwn(edges, letter)) {
      this.#at += 2;
      return plain(edges[letter], 0);
    }
    const found = this.#member();
    return plain(typeof found === "number" && !this.#ignoresCase ? literal(found) : this.#written(typeof found === "number" ? [[found, found]] : found), 1);
  }

  /** @returns {number | Ranges} What may stand in a class: a character, or the set behind a backslash. */
  #member() {
    if (this.source[this.#at] !== "\\") {
      const character = this.#here();
      this.#at += character.length;
      return character.codePointAt(0) ?? 0;
    }
    const letter = this.source[this.#at + 1] ?? "";
    if (letter === "p" || letter === "P") {
      const found = this.#match(PROPERTY);
      if (!found) throw this.#refused(`\`${this.source.slice(this.#at, this.#at + 12)}\``);
      this.#at += found[0].length;
      return this.#named(found[2], (letter === "P") !== Boolean(found[1]));
    }
    const code = this.#match(CODE);
    if (code) {
      this.#at += code[0].length;
      return Math.min(parseInt(code[1] ?? code[2] ?? code[3], 16), LAST);
    }
    if (letter && Object.hasOwn(CLASSES, letter.toLowerCase())) {
      this.#at += 2;
      return this.#named(CLASSES[letter.toLowerCase()], letter !== letter.toLowerCase());
    }
    this.#at += 1;
    if (Object.hasOwn(ESCAPED, letter)) {
      this.#at += 1;
      return ESCAPED[letter];
    }
    if (!letter || /[\p{L}\p{N}]/u.test(this.#here())) throw this.#refused(`\`\\${letter}\``);
    const character = this.#here();
    this.#at += character.length;
    return character.codePointAt(0) ?? 0;
  }

  /** @param {string} name @param {boolean} isInverted @returns {Ranges} */
  #named(name, isInverted) {
    const found = name.length <= 2 || name.startsWith("regex_") ? ranges(name) : null;
    if (!found) throw this.#refused(`\`\\p{${name}}\``);
    return isInverted ? complement(found) : found;
  }

  /** @param {number} depth @returns {Ranges} */
  #class(depth) {
    if (depth > MAX_DEPTH) throw this.#refused("such deep nesting");
    const isInverted = this.source[this.#at] === "^";
    if (isInverted) this.#at += 1;
    /** @type {Ranges[]} */
    let sets = [];
    /** @type {Ranges | null} */
    let cut = null;
    const begin = this.#at;
    while (this.source[this.#at] !== "]" || this.#at === begin) {
      if (this.#at >= this.source.length) throw this.#refused("an unpaired `[`");
      if (this.source.startsWith("&&", this.#at)) {
        this.#at += 2;
        cut = both(cut, union(...sets));
        sets = [];
      } else if (this.source.startsWith("[:", this.#at)) {
        throw this.#refused("`[:`");
      } else if (this.source[this.#at] === "[") {
        this.#at += 1;
        sets.push(this.#class(depth + 1));
      } else {
        sets.push(this.#run());
      }
    }
    this.#at += 1;
    const found = both(cut, union(...sets));
    return isInverted ? complement(found) : found;
  }

  /** @returns {Ranges} */
  #run() {
    const first = this.#member();
    if (typeof first !== "number") return first;
    if (this.source[this.#at] === "-" && !["]", "[", undefined].includes(this.source[this.#at + 1])) {
      this.#at += 1;
      const last = this.#member();
      if (typeof last !== "number" || last < first) throw this.#refused("a bad range");
      return [[first, last]];
    }
    return [[first, first]];
  }

  /**
   * Write a class. Where case does not count, the other case of ASCII letters is in it, and what folds to one.
   *
   * @param {Ranges} of
   */
  #written(of) {
    if (!this.#ignoresCase) return writeClass(of);
    if (of.length === 1 && of[0][0] === of[0][1] && of[0][0] > 0x7f) {
      throw this.#refused("a letter outside of ASCII whose case does not count");
    }
    const has = (/** @type {number} */ code) => of.some(([first, last]) => first <= code && code <= last);
    /** @type {Ranges} */
    const more = [];
    for (let upper = 65; upper <= 90; upper += 1) {
      if (has(upper) || has(upper + 32)) more.push([upper, upper], [upper + 32, upper + 32]);
    }
    if (has(75) || has(107)) more.push([0x212a, 0x212a]);
    if (has(83) || has(115)) more.push([0x17f, 0x17f]);
    return writeClass(union(of, more));
  }
}

/** @param {string} text @param {number} least @returns {Shape} */
function plain(text, least) {
  return { text, least, open: 0, isBranching: false };
}

/** @param {Ranges | null} one @param {Ranges} other @returns {Ranges} */
function both(one, other) {
  return one === null ? other : complement(union(complement(one), complement(other)));
}

/**
 * @param {string} source
 * @param {string} where
 * @returns {(text: string) => Span[]} The spans of the matches; an empty one right behind another is none.
 */
export function pattern(source, where) {
  if (source.length > MAX_CHARACTERS) throw unsupported(`\`${where}\``, `a pattern of ${source.length} characters`);
  const shape = new Reader(source, where).read();
  /** @type {RegExp} */
  let compiled;
  try {
    compiled = new RegExp(shape.text, "gu");
  } catch (error) {
    throw unsupported(`\`${where}\``, `the pattern \`${source.slice(0, 80)}\` (${error})`);
  }
  return (text) => {
    /** @type {Span[]} */
    const found = [];
    let end = -1;
    for (const one of text ? text.matchAll(compiled) : []) {
      if (one[0] || one.index !== end) found.push([one.index, one.index + one[0].length]);
      end = one.index + one[0].length;
    }
    return found;
  };
}

/** @param {import("./definition.js").Part} part @returns {(text: string) => Span[]} The finder of its `pattern`. */
export function readPattern(part) {
  const given = part.part("pattern");
  const text = given.textOrNull("String");
  return text === null ? pattern(given.text("Regex"), `${given.where}.Regex`) : (of) => literals(of, text);
}

/** @param {string} text @param {string} wanted @returns {Span[]} */
export function literals(text, wanted) {
  /** @type {Span[]} */
  const found = [];
  for (let at = wanted ? text.indexOf(wanted) : -1; at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
  return found;
}
