/**
 * The normalizers with the places of characters: which part of the given text each unit of a changed text stands for. As
 * `alignment.py`, in UTF-16 units; a text that is not asked for its offsets goes through `normalizers.js` alone.
 */

import { toCharacters } from "./byte-alphabet.js";
import { characterChanges } from "./character-map.js";
import { normalizer } from "./normalizers.js";
import { readPattern } from "./patterns.js";
import { finder, isAscii, lowerCase, members } from "./unicode-table.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {import("./patterns.js").Span} Span */
/** @typedef {{text: string, spans: Span[]}} Aligned A text, and for each of its units where in the given text it comes from. */
/** @typedef {(one: Aligned) => Aligned} AlignedNormalizer */
/** @typedef {import("./character-map.js").Change} Change */

const FORMS = ["NFC", "NFD", "NFKC", "NFKD"];

/** @param {string} text @returns {Aligned} */
export function aligned(text) {
  /** @type {Span[]} */
  const spans = [];
  for (const character of text) {
    const span = /** @type {Span} */ ([spans.length, spans.length + character.length]);
    for (let unit = 0; unit < character.length; unit++) spans.push(span);
  }
  return { text, spans };
}

/** @param {Part | null} part @returns {AlignedNormalizer | null} */
export function alignedNormalizer(part) {
  if (part === null) return null;
  if (FORMS.includes(part.kind)) return normalForm(part.kind);
  switch (part.kind) {
    case "Sequence":
      return chained(part.parts("normalizers").map((one) => alignedNormalizer(one)));
    case "BertNormalizer":
      return bert(part);
    case "ByteLevel":
      return bytesAsCharacters;
    case "Replace":
      return replace(part);
    case "Prepend":
      return prepend(part);
    case "Strip":
      return strip(part);
    case "Precompiled": {
      const changesOf = characterChanges(part);
      return (one) => {
        const changes = changesOf(one.text);
        return changes ? changed(one, changes) : one;
      };
    }
    default:
      return eachCharacter(/** @type {(text: string) => string} */ (normalizer(part)));
  }
}

/** @param {Aligned} one @returns {Aligned} Each byte as a character of the byte alphabet. */
export const bytesAsCharacters = eachCharacter(toCharacters);

/** @param {(AlignedNormalizer | null)[]} steps @returns {AlignedNormalizer} */
function chained(steps) {
  return (one) => steps.reduce((before, step) => (step ? step(before) : before), one);
}

/** @param {(character: string) => string} rewrite @returns {AlignedNormalizer} What is new belongs to the old character. */
function eachCharacter(rewrite) {
  return ({ text, spans }) => {
    let [found, at] = ["", 0];
    /** @type {Span[]} */
    const places = [];
    for (const character of text) {
      const written = rewrite(character);
      found += written;
      for (let unit = 0; unit < written.length; unit++) places.push(spans[at]);
      at += character.length;
    }
    return { text: found, spans: places };
  };
}

/** @param {Aligned} one @param {Change[]} changes @returns {Aligned} An inserted character takes the place of the old one before it. */
function changed({ text, spans }, changes) {
  /** @type {Span[]} */
  const old = [];
  let unit = 0;
  for (const character of text) {
    old.push(spans[unit]);
    unit += character.length;
  }
  let [found, at] = ["", 0];
  /** @type {Span[]} */
  const places = [];
  for (const [character, change] of changes) {
    const place = change > 0 ? (at ? old[at - 1] : /** @type {Span} */ ([0, 0])) : old[at];
    if (change <= 0) at += 1 - change;
    found += character;
    for (let i = 0; i < character.length; i++) places.push(place);
  }
  return { text: found, spans: places };
}

/** @param {Part} part @returns {AlignedNormalizer} */
function bert(part) {
  const isLower = part.flag("lowercase", true);
  /** @type {AlignedNormalizer[]} */
  const steps = [];
  if (part.flag("clean_text", true)) {
    const [isControl, isWhite] = [members("bert_control"), members("space")];
    steps.push(eachCharacter((one) => (isControl(one) ? "" : isWhite(one) ? " " : one)));
  }
  if (part.flag("handle_chinese_chars", true)) {
    const isChinese = members("bert_chinese");
    steps.push(eachCharacter((one) => (isChinese(one) ? ` ${one} ` : one)));
  }
  if (part.flag("strip_accents", isLower)) {
    const isAccent = members("bert_accent");
    steps.push(normalForm("NFD"), eachCharacter((one) => (isAccent(one) ? "" : one)));
  }
  if (isLower) steps.push(eachCharacter(lowerCase));
  return chained(steps);
}

/** @param {Part} part @returns {AlignedNormalizer} */
function replace(part) {
  const [find, added] = [readPattern(part), part.text("content")];
  return ({ text, spans }) => {
    let [found, at] = ["", 0];
    /** @type {Span[]} */
    const places = [];
    for (const [start, end] of find(text)) {
      found += text.slice(at, start) + added;
      places.push(...spans.slice(at, start), ...new Array(added.length).fill(end ? spans[end - 1] : [0, 0]));
      at = end;
    }
    return { text: found + text.slice(at), spans: places.concat(spans.slice(at)) };
  };
}

/** @param {Part} part @returns {AlignedNormalizer} */
function prepend(part) {
  const added = part.text("prepend");
  return ({ text, spans }) => (text ? { text: added + text, spans: [...new Array(added.length).fill(spans[0]), ...spans] } : { text, spans });
}

/** @param {Part} part @returns {AlignedNormalizer} */
function strip(part) {
  const [isLeft, isRight] = [part.flag("strip_left", true), part.flag("strip_right", true)];
  const white = new RegExp(finder("space").source, "u");
  return ({ text, spans }) => {
    let [start, end] = [0, text.length];
    while (isLeft && start < end && white.test(text[start])) start += 1;
    while (isRight && end > start && white.test(text[end - 1])) end -= 1;
    return { text: text.slice(start, end), spans: spans.slice(start, end) };
  };
}

/** @param {string} form @returns {AlignedNormalizer} A normal form of Unicode (https://www.unicode.org/reports/tr15). */
function normalForm(form) {
  const isUnknown = members("unnormalized");
  const decomposed = form.includes("K") ? "NFKD" : "NFD";
  return (one) => {
    if (isAscii(one.text)) return one;
    const changes = decompose(one.text, decomposed, isUnknown);
    return changed(one, form.endsWith("C") ? compose(changes, isUnknown) : changes);
  };
}

/**
 * The class of a mark decides on which side of another it stands in the normal form; the class itself is not to be had here.
 *
 * @param {string} one
 * @param {string} other
 * @returns {boolean} Whether the class of the first mark is below that of the second.
 */
function isBelow(one, other) {
  return one !== other && (other + one).normalize("NFD") === one + other;
}

/** @param {string} character @returns {boolean} Whether it has a class: U+0334 has the lowest one, 1, and U+0345 the highest, 240. */
function isMark(character) {
  return character > "\u02ff" && (character === "\u0334" || character === "\u0345" || isBelow("\u0334", character) || isBelow(character, "\u0345"));
}

/**
 * @param {string} text
 * @param {string} form
 * @param {(character: string) => boolean} isUnknown
 * @returns {Change[]} The decomposed characters, the marks behind each starter sorted by their class.
 */
function decompose(text, form, isUnknown) {
  /** @type {Change[]} */
  const changes = [];
  /** @type {Change[]} */
  let marks = [];
  const flush = () => {
    marks.sort(([one], [other]) => (isBelow(one, other) ? -1 : isBelow(other, one) ? 1 : 0));
    changes.push(...marks);
    marks = [];
  };
  for (const old of text) {
    const isKnown = !isUnknown(old);
    for (const [index, character] of Array.from(isKnown ? old.normalize(form) : old).entries()) {
      /** @type {Change} */
      const change = [character, index > 0 ? 1 : 0];
      if (isKnown && isMark(character)) {
        marks.push(change);
        continue;
      }
      flush();
      changes.push(change);
    }
  }
  flush();
  return changes;
}

/** @param {Change[]} changes @param {(character: string) => boolean} isUnknown @returns {Change[]} Each mark joined with its starter where both are one character (UAX 15, D117). */
function compose(changes, isUnknown) {
  /** @type {Change[]} */
  const found = [];
  let starter = -1;
  /** The last mark that is kept behind the starter. @type {string | null} */
  let last = null;
  for (const [character, change] of changes) {
    const isKnown = !isUnknown(character);
    const hasClass = isKnown && isMark(character);
    if (starter >= 0 && isKnown && (last === null || (hasClass && isBelow(last, character)))) {
      const both = (found[starter][0] + character).normalize("NFC");
      if (Array.from(both).length === 1 && !isUnknown(found[starter][0])) {
        found[starter] = [both, found[starter][1] + change - 1];
        continue;
      }
    }
    found.push([character, change]);
    if (hasClass) last = character;
    else [starter, last] = [found.length - 1, null];
  }
  return found;
}
