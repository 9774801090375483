/** The 256 characters that stand for bytes in a byte-level vocabulary (https://github.com/openai/gpt-2, src/encoder.py). */

const isPrintable = (/** @type {number} */ byte) => (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
let others = 256;
/** The character of each byte. */
export const CHARACTERS = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : others++));
/** The byte of each character. */
export const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));
/** The character of the byte that is a space: `Ġ`. */
export const SPACE = CHARACTERS[32];
const encoder = new TextEncoder();

/** @param {string} text @returns {string} Each byte of the text in UTF-8 as its character. */
export function toCharacters(text) {
  let found = "";
  for (const byte of encoder.encode(text)) found += CHARACTERS[byte];
  return found;
}
