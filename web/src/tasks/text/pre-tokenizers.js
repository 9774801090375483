/** The pre-tokenizers: each cuts a text into words. The same as `pre_tokenizers.py`. */

import { bytesAsCharacters } from "./alignment.js";
import { toCharacters } from "./byte-alphabet.js";
import { malformed } from "./definition.js";
import { GPT2, literals, pattern, readPattern } from "./patterns.js";
import { complement, set, union, writeClass } from "./unicode-table.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {import("./patterns.js").Span} Span */
/** @typedef {{text: string, isFirst: boolean, spans?: Span[]}} Piece A part of a text, whether it begins where the text begins, and
 *   where in the given text each of its units comes from, where that is asked for. */
/** @typedef {(pieces: Piece[]) => Piece[]} PreTokenizer */

const BEHAVIOURS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"];

/** @type {Record<string, (part: Part) => PreTokenizer>} */
const PRE_TOKENIZERS = {
  BertPreTokenizer: () => {
    const others = writeClass(complement(union(set("space"), set("bert_punctuation"))));
    return wordsOf(new RegExp(`${writeClass(set("bert_punctuation"))}|${others}+`, "gu"));
  },
  ByteLevel: bytes,
  CharDelimiterSplit: (part) => {
    const delimiter = oneCharacter(part, "delimiter");
    return splitting((text) => literals(text, delimiter), "removed");
  },
  Digits: (part) => splitting(oneOf("numeric"), part.flag("individual_digits", false) ? "isolated" : "contiguous"),
  Metaspace: metaspace,
  Punctuation: (part) => splitting(oneOf("punctuation"), part.choice("behavior", BEHAVIOURS, "isolated")),
  Sequence: (part) => chained(part.parts("pretokenizers")),
  Split: (part) => splitting(readPattern(part), part.choice("behavior", BEHAVIOURS), part.flag("invert", false)),
  Whitespace: () => {
    const others = writeClass(complement(union(set("space"), set("word"))));
    return wordsOf(new RegExp(`${writeClass(set("word"))}+|${others}+`, "gu"));
  },
  WhitespaceSplit: () => splitting(oneOf("space"), "removed"),
};

/** @param {Part | null} part @returns {PreTokenizer | null} */
export function preTokenizer(part) {
  if (part === null) return null;
  if (!Object.hasOwn(PRE_TOKENIZERS, part.kind)) throw part.unknown("pre-tokenizer");
  return PRE_TOKENIZERS[part.kind](part);
}

/** @param {Part | null} part @returns {PreTokenizer | null} It without its last part, where that only writes bytes. */
export function beforeBytes(part) {
  if (part?.kind === "ByteLevel" && !part.flag("add_prefix_space", true) && part.flag("use_regex", true)) {
    return splitting(pattern(GPT2, part.where), "isolated");
  }
  const steps = part?.kind === "Sequence" ? part.parts("pretokenizers") : [];
  const last = steps.at(-1);
  const isPlain = last?.kind === "ByteLevel" && !last.flag("add_prefix_space", true) && !last.flag("use_regex", true);
  return isPlain ? chained(steps.slice(0, -1)) : null;
}

/** @param {Part[]} parts @returns {PreTokenizer} */
function chained(parts) {
  const steps = parts.map((one) => preTokenizer(one));
  return (pieces) => steps.reduce((before, step) => (step ? step(before) : before), pieces);
}

/**
 * @param {(text: string) => Span[]} find The delimiters.
 * @param {string} behaviour
 * @param {boolean} [isInverted] What is between them is the delimiter.
 * @returns {PreTokenizer}
 */
function splitting(find, behaviour, isInverted = false) {
  return (pieces) => {
    /** @type {Piece[]} */
    const found = [];
    for (const piece of pieces) {
      for (const [start, end] of parts(find(piece.text), piece.text.length, behaviour, isInverted)) {
        if (start < end) found.push(cut(piece, start, end));
      }
    }
    return found;
  };
}

/** @param {Piece} piece @param {number} start @param {number} end @returns {Piece} A part of it. */
export function cut({ text, isFirst, spans }, start, end) {
  return { text: text.slice(start, end), isFirst: isFirst && start === 0, spans: spans?.slice(start, end) };
}

/** @param {Span[]} delimiters @param {number} length @param {string} behaviour @param {boolean} isInverted @returns {Span[]} */
function parts(delimiters, length, behaviour, isInverted) {
  /** @type {[number, number, boolean][]} */
  let marked = [];
  let at = 0;
  for (const [start, end] of delimiters) {
    if (at < start) marked.push([at, start, isInverted]);
    marked.push([start, end, !isInverted]);
    at = end;
  }
  if (at < length) marked.push([at, length, isInverted]);
  if (behaviour === "removed") marked = marked.filter(([, , isCut]) => !isCut);
  if (behaviour === "removed" || behaviour === "isolated") return marked.map(([start, end]) => [start, end]);
  const isBackwards = behaviour === "merged_with_next";
  if (isBackwards) marked.reverse();
  /** @type {Span[]} */
  const merged = [];
  let wasCut = false;
  for (const [start, end, isCut] of marked) {
    const other = merged.at(-1);
    if (other && (behaviour === "contiguous" ? isCut === wasCut : isCut && !wasCut)) {
      merged[merged.length - 1] = [Math.min(start, other[0]), Math.max(end, other[1])];
    } else {
      merged.push([start, end]);
    }
    wasCut = isCut;
  }
  return isBackwards ? merged.reverse() : merged;
}

/** @param {string} name @returns {(text: string) => Span[]} */
function oneOf(name) {
  const one = new RegExp(writeClass(set(name)), "gu");
  return (text) => Array.from(text.matchAll(one), (found) => [found.index, found.index + found[0].length]);
}

/** @param {RegExp} word @returns {PreTokenizer} Keeps only the matches. */
function wordsOf(word) {
  return (pieces) =>
    pieces.flatMap((piece) => {
      const { text, isFirst, spans } = piece;
      if (spans) return Array.from(text.matchAll(word), (found) => cut(piece, found.index, found.index + found[0].length));
      return (text.match(word) ?? []).map((found, index) => ({ text: found, isFirst: isFirst && index === 0 && text.startsWith(found) }));
    });
}

/** @param {Part} part @returns {PreTokenizer} */
function bytes(part) {
  const isSpaced = part.flag("add_prefix_space", true);
  const words = part.flag("use_regex", true) ? splitting(pattern(GPT2, part.where), "isolated") : null;
  return (pieces) => {
    const begun = isSpaced ? pieces.map((one) => begin(one, " ")) : pieces;
    return (words ? words(begun) : begun).map(({ text, isFirst, spans }) =>
      spans ? { ...bytesAsCharacters({ text, spans }), isFirst } : { text: toCharacters(text), isFirst },
    );
  };
}

/** @param {Piece} piece @param {string} character @returns {Piece} */
function begin(piece, character) {
  const { text, isFirst, spans } = piece;
  if (!text || text.startsWith(character)) return piece;
  return { text: character + text, isFirst, spans: spans && [...new Array(character.length).fill(spans[0]), ...spans] };
}

/** @param {Part} part @param {string} key @param {string} [missing] */
function oneCharacter(part, key, missing) {
  const found = part.text(key, missing);
  if (Array.from(found).length !== 1) throw malformed(`\`${part.where}.${key}\``, "must be one character");
  return found;
}

/** @param {Part} part @returns {string} When Metaspace puts its character in front: `always`, `first` or `never`. */
export function prependScheme(part) {
  return part.choice("prepend_scheme", ["always", "first", "never"], part.flag("add_prefix_space", true) ? "always" : "never");
}

/** @param {Part} part @returns {string} The character that Metaspace writes for a space. */
export function replacement(part) {
  return oneCharacter(part, "replacement", "▁");
}

/** @param {Part} part @returns {PreTokenizer} */
function metaspace(part) {
  const [mark, scheme, isSplit] = [replacement(part), prependScheme(part), part.flag("split", true)];
  const marked = splitting((text) => literals(text, mark), "merged_with_next");
  return (pieces) => {
    /** @type {Piece[]} */
    const found = [];
    for (const { text, isFirst, spans } of pieces) {
      /** @type {Piece} */
      let piece = { text: text.replaceAll(" ", mark), isFirst, spans };
      if (scheme === "always" || (scheme === "first" && isFirst)) piece = begin(piece, mark);
      if (!isSplit) {
        found.push(piece);
        continue;
      }
      if (spans) {
        found.push(...marked([piece]));
        continue;
      }
      const [before, ...words] = piece.text.split(mark);
      if (before) found.push({ text: before, isFirst });
      for (const word of words) found.push({ text: mark + word, isFirst: false });
    }
    return found;
  };
}
