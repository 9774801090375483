/** The decoders: what turns the tokens of a model's answer into text. The same as `decoders.py`. */

import { BYTES } from "./byte-alphabet.js";
import { malformed } from "./definition.js";
import { replace } from "./normalizers.js";
import { prependScheme, replacement } from "./pre-tokenizers.js";

/** @typedef {import("./definition.js").Part} Part */
/** @typedef {(tokens: string[]) => string[]} Decoder */

const CLEANED = [
  [" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"],
  [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"],
];
const encoder = new TextEncoder();

/** @type {Record<string, (part: Part) => Decoder>} */
const DECODERS = {
  BPEDecoder: (part) => {
    const suffix = part.text("suffix", "</w>");
    return (tokens) => tokens.map((one, index) => one.replaceAll(suffix, index + 1 < tokens.length ? " " : ""));
  },
  ByteFallback: () => byteFallback,
  ByteLevel: () => bytes,
  CTC: ctc,
  Fuse: () => (tokens) => [tokens.join("")],
  Metaspace: (part) => {
    const [mark, first] = [replacement(part), prependScheme(part) === "never" ? " " : ""];
    return (tokens) => tokens.map((one, index) => one.replaceAll(mark, index ? " " : first));
  },
  Replace: (part) => {
    const step = replace(part);
    return (tokens) => tokens.map(step);
  },
  Sequence: (part) => {
    const steps = part.parts("decoders").map((one) => decoder(one));
    return (tokens) => steps.reduce((before, step) => (step ? step(before) : before), tokens);
  },
  Strip: strip,
  WordPiece: wordPiece,
};

/** @param {Part | null} part @returns {Decoder | null} Null for none: the tokens are then words. */
export function decoder(part) {
  if (part === null) return null;
  if (!Object.hasOwn(DECODERS, part.kind)) throw part.unknown("decoder");
  return DECODERS[part.kind](part);
}

/** @param {string[]} tokens */
function bytes(tokens) {
  /** @type {number[]} */
  const data = [];
  for (const token of tokens) {
    const found = Array.from(token, (one) => BYTES.get(one));
    data.push(.../** @type {number[]} */ (found.includes(undefined) ? Array.from(encoder.encode(token)) : found));
  }
  return [new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(data))];
}

/** @param {string[]} tokens */
function byteFallback(tokens) {
  /** @type {string[]} */
  const found = [];
  /** @type {number[]} */
  let run = [];
  const endRun = () => {
    try {
      if (run.length) found.push(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(run)));
    } catch {
      found.push("\ufffd".repeat(run.length));
    }
    run = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9a-fA-F]{2}|\+[0-9a-fA-F])>$/.exec(token);
    if (byte) {
      run.push(parseInt(byte[1], 16));
    } else {
      endRun();
      found.push(token);
    }
  }
  endRun();
  return found;
}

/** @param {string} text */
function cleaned(text) {
  return CLEANED.reduce((before, [old, added]) => before.replaceAll(old, added), text);
}

/** @param {Part} part @returns {Decoder} */
function wordPiece(part) {
  const [prefix, isCleaned] = [part.text("prefix", "##"), part.flag("cleanup", true)];
  return (tokens) =>
    tokens.map((token, index) => {
      const text = index === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return isCleaned ? cleaned(text) : text;
    });
}

/** @param {Part} part @returns {Decoder} */
function strip(part) {
  const [content, start, stop] = [part.text("content"), part.whole("start", 0), part.whole("stop", 0)];
  if (Array.from(content).length !== 1) throw malformed(`\`${part.where}.content\``, "must be one character");
  return (tokens) =>
    tokens.map((token) => {
      const characters = Array.from(token);
      let [first, last] = [0, characters.length];
      while (first < start && characters[first] === content) first += 1;
      while (characters.length - last < stop && last > 0 && characters[last - 1] === content) last -= 1;
      return characters.slice(first, Math.max(first, last)).join("");
    });
}

/** @param {Part} part @returns {Decoder} */
function ctc(part) {
  const [filler, delimiter] = [part.text("pad_token", "<pad>"), part.text("word_delimiter_token", "|")];
  const isCleaned = part.flag("cleanup", true);
  return (tokens) =>
    tokens
      .filter((token, index) => index === 0 || token !== tokens[index - 1])
      .map((token) => token.replaceAll(filler, ""))
      .map((text) => (isCleaned ? cleaned(text).replaceAll(delimiter, " ") : text))
      .filter((text) => text);
}
