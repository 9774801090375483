/** The part Precompiled: the character map of a SentencePiece model. See `character_map.py` for the format. */

import { malformed } from "./definition.js";
import { isAscii, members } from "./unicode-table.js";

const [HAS_LEAF, WIDE, LABEL, VALUE] = [0x100, 0x200, 0x800000ff, 0x7fffffff];
const encoder = new TextEncoder();

/** @typedef {[character: string, change: number]} Change A new character: 1 where it is inserted, 0 where it stands for the next old one,
 *   -n where it stands for that and the n behind it are gone. */
/** @typedef {{find: (text: string) => string | null, isPlain: (text: string) => boolean}} CharacterMap What replaces a text, and whether nothing in one is replaced. */

/** @param {import("./definition.js").Part} part @returns {CharacterMap | null} */
function readMap(part) {
  const where = `\`${part.where}.precompiled_charsmap\``;
  const written = part.text("precompiled_charsmap", "");
  if (!written) return null;
  /** @type {Uint8Array<ArrayBuffer>} */
  let data;
  try {
    data = Uint8Array.from(atob(written), (one) => one.charCodeAt(0));
  } catch {
    throw malformed(where, "is not base64");
  }
  const find = lookUp(data, where);
  const changing = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)).filter((one) => find(one) !== null);
  return { find, isPlain: (text) => isAscii(text) && !changing.some((one) => text.includes(one)) };
}

/** @param {import("./definition.js").Part} part @returns {(text: string) => Change[] | null} What becomes of a text's characters; null where nothing does. */
export function characterChanges(part) {
  const map = readMap(part);
  return (text) => {
    if (!map || map.isPlain(text)) return null;
    /** @type {Change[]} */
    const changes = [];
    const replace = (/** @type {number} */ old, /** @type {string} */ written) => {
      const characters = Array.from(written);
      const inserted = characters.length - old;
      characters.forEach((one, index) => changes.push([one, index >= old ? 1 : 0]));
      const last = changes.at(-1);
      if (inserted < 0 && last) last[1] += inserted;
    };
    for (const grapheme of graphemes(text)) {
      const whole = encoder.encode(grapheme).length < 6 ? map.find(grapheme) : null;
      if (whole !== null) {
        replace(Array.from(grapheme).length, whole);
        continue;
      }
      for (const one of grapheme) {
        const written = map.find(one);
        if (written === null) changes.push([one, 0]);
        else replace(1, written);
      }
    }
    return changes;
  };
}

/** @param {import("./definition.js").Part} part @returns {(text: string) => string} */
export function characterMap(part) {
  const map = readMap(part);
  if (!map) return (text) => text;
  const { find, isPlain } = map;
  return (text) => {
    if (isPlain(text)) return text;
    let found = "";
    for (const grapheme of graphemes(text)) {
      const whole = encoder.encode(grapheme).length < 6 ? find(grapheme) : null;
      if (whole !== null) found += whole;
      else for (const one of grapheme) found += find(one) ?? one;
    }
    return found;
  };
}

/** @param {Uint8Array<ArrayBuffer>} data @param {string} where @returns {(text: string) => string | null} */
function lookUp(data, where) {
  const view = new DataView(data.buffer);
  const size = data.length < 8 ? 0 : view.getUint32(0, true);
  if (size % 4 || size < 4 || size > data.length - 4) throw malformed(where, "is damaged");
  const units = Uint32Array.from({ length: size / 4 }, (_, index) => view.getUint32(4 + index * 4, true));
  const texts = data.subarray(4 + size);
  const offset = (/** @type {number} */ unit) => (unit >>> 10) << ((unit & WIDE) >>> 6);
  /** @type {Map<string, string | null>} */
  const asked = new Map();
  const search = (/** @type {string} */ text) => {
    let at = offset(units[0]);
    for (const byte of encoder.encode(text)) {
      at = (at ^ byte) >>> 0;
      if (!byte || at >= units.length || (units[at] & LABEL) >>> 0 !== byte) return null;
      const unit = units[at];
      at = (at ^ offset(unit)) >>> 0;
      if (unit & HAS_LEAF) {
        if (at >= units.length) return null;
        const start = units[at] & VALUE;
        const end = texts.indexOf(0, start);
        return end < 0 ? null : new TextDecoder().decode(texts.subarray(start, end));
      }
    }
    return null;
  };
  return (text) => {
    let found = asked.get(text);
    if (found === undefined) {
      found = search(text);
      if (asked.size > 65_536) asked.clear();
      asked.set(text, found);
    }
    return found;
  };
}

const isExtending = members("grapheme_extend");
const isPrepending = members("grapheme_prepend");
const isControl = members("grapheme_control");

/** @param {string} text */
function* graphemes(text) {
  const characters = Array.from(text);
  const length = characters.length;
  for (let start = 0; start < length; ) {
    let end = start + 1;
    if (characters[start] === "\r" && characters[end] === "\n") {
      end += 1;
    } else if (!isControl(characters[start])) {
      while (end < length && isPrepending(characters[end - 1]) && !isControl(characters[end])) end += 1;
      while (end < length && isOneSyllable(characters[end - 1].charCodeAt(0), characters[end].charCodeAt(0))) end += 1;
      while (end < length && isExtending(characters[end])) end += 1;
    }
    yield characters.slice(start, end).join("");
    start = end;
  }
}

/** @param {number} code @param {number} first @param {number} last */
const between = (code, first, last) => code >= first && code <= last;

/** @param {number} first @param {number} second Whether two belong to one Hangul syllable (UAX 29, GB6 to GB8). */
function isOneSyllable(first, second) {
  const isVowel = between(second, 0x1160, 0x11a7) || between(second, 0xd7b0, 0xd7c6);
  const isTail = between(second, 0x11a8, 0x11ff) || between(second, 0xd7cb, 0xd7fb);
  if (between(first, 0x1100, 0x115f) || between(first, 0xa960, 0xa97c)) {
    return between(second, 0x1100, 0x115f) || between(second, 0xa960, 0xa97c) || isVowel || between(second, 0xac00, 0xd7a3);
  }
  const isSyllable = between(first, 0xac00, 0xd7a3);
  if ((isSyllable && (first - 0xac00) % 28 === 0) || between(first, 0x1160, 0x11a7) || between(first, 0xd7b0, 0xd7c6)) {
    return isVowel || isTail;
  }
  return (isSyllable || between(first, 0x11a8, 0x11ff) || between(first, 0xd7cb, 0xd7fb)) && isTail;
}
