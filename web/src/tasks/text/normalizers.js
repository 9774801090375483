/** The normalizers: each rewrites a text before it is cut into words. The same as `normalizers.py`. */

import { characterMap } from "./character-map.js";
import { toCharacters } from "./byte-alphabet.js";
import { readPattern } from "./patterns.js";
import { finder, isAscii, lowerCase } from "./unicode-table.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {(text: string) => string} Normalizer */

const FORMS = ["NFC", "NFD", "NFKC", "NFKD"];

/** @type {Record<string, (part: Part) => Normalizer>} */
const NORMALIZERS = {
  BertNormalizer: bert,
  ByteLevel: () => toCharacters,
  Lowercase: () => lowerCase,
  Nmt: () => nmt,
  Precompiled: characterMap,
  Prepend: (part) => {
    const added = part.text("prepend");
    return (text) => (text ? added + text : text);
  },
  Replace: replace,
  Sequence: (part) => {
    const steps = part.parts("normalizers").map((one) => normalizer(one));
    return (text) => steps.reduce((before, step) => (step ? step(before) : before), text);
  },
  Strip: strip,
  StripAccents: () => {
    const accents = finder("mark", "+");
    return (text) => text.replace(accents, "");
  },
};

/** @param {Part | null} part @returns {Normalizer | null} */
export function normalizer(part) {
  if (part === null) return null;
  if (FORMS.includes(part.kind)) return normalForm(part.kind);
  if (!Object.hasOwn(NORMALIZERS, part.kind)) throw part.unknown("normalizer");
  return NORMALIZERS[part.kind](part);
}

/** @param {string} form @returns {Normalizer} What the package's table is too old to know is left alone. */
function normalForm(form) {
  const unknown = finder("unnormalized", "+");
  return (text) => {
    if (isAscii(text)) return text;
    let [found, at] = ["", 0];
    for (const one of text.matchAll(unknown)) {
      found += text.slice(at, one.index).normalize(form) + one[0];
      at = one.index + one[0].length;
    }
    return found + text.slice(at).normalize(form);
  };
}

/** @param {Part} part @returns {Normalizer} */
function bert(part) {
  const isLower = part.flag("lowercase", true);
  /** @type {Normalizer[]} */
  const steps = [];
  if (part.flag("clean_text", true)) {
    const [control, white] = [finder("bert_control", "+"), finder("space")];
    steps.push((text) => text.replace(control, "").replace(white, " "));
  }
  if (part.flag("handle_chinese_chars", true)) {
    const chinese = finder("bert_chinese");
    steps.push((text) => (isAscii(text) ? text : text.replace(chinese, " $& ")));
  }
  if (part.flag("strip_accents", isLower)) {
    const [decompose, accents] = [normalForm("NFD"), finder("bert_accent", "+")];
    steps.push((text) => (isAscii(text) ? text : decompose(text).replace(accents, "")));
  }
  if (isLower) steps.push(lowerCase);
  return (text) => steps.reduce((before, step) => step(before), text);
}

/** @param {string} text */
function nmt(text) {
  return text
    .replace(/[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g, "")
    .replace(/[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g, " ");
}

/** @param {Part} part @returns {Normalizer} */
export function replace(part) {
  const [find, added] = [readPattern(part), part.text("content")];
  return (text) => {
    let [found, at] = ["", 0];
    for (const [start, end] of find(text)) {
      found += text.slice(at, start) + added;
      at = end;
    }
    return found + text.slice(at);
  };
}

/** @param {Part} part @returns {Normalizer} */
function strip(part) {
  const space = finder("space").source;
  const left = part.flag("strip_left", true) ? new RegExp(`^${space}+`, "u") : null;
  const isRight = part.flag("strip_right", true);
  const white = new RegExp(space, "u");
  return (text) => {
    const kept = left ? text.replace(left, "") : text;
    let end = kept.length; // not by a pattern: it would look behind each run of spaces
    while (isRight && end > 0 && white.test(kept[end - 1])) end -= 1;
    return kept.slice(0, end);
  };
}
