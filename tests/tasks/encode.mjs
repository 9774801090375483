/** Encode and decode texts with the page's tokenizer: `node encode.mjs FOLDER`, which has tokenizer.json and calls.json. */

import { readFileSync } from "node:fs";

import { Tokenizer } from "../../web/src/tasks/text/tokenizer.js";

/**
 * @param {[number, number][]} offsets In UTF-16 units.
 * @param {string} text
 * @param {string | null} pair
 * @returns {[number, number][] | null} In characters, as in Python; null for a pair with characters of two units.
 */
function inCharacters(offsets, text, pair) {
  if (pair !== null) return /[^\0-\uffff]/u.test(text + pair) ? null : offsets;
  const counts = [0];
  for (const character of text) for (let unit = 0; unit < character.length; unit++) counts.push(/** @type {number} */ (counts.at(-1)) + (unit ? 0 : 1));
  return offsets.map(([start, end]) => [counts[start], counts[end]]);
}

const [folder] = process.argv.slice(2);
const tokenizer = new Tokenizer(readFileSync(`${folder}/tokenizer.json`));
const answers = JSON.parse(readFileSync(`${folder}/calls.json`, "utf8")).map((/** @type {any} */ { text, pair, options }) => {
  try {
    const encoding = tokenizer.encode(text, pair, options);
    const placed = tokenizer.encode(text, pair, { ...options, offsets: true });
    const stream = tokenizer.decodeStream();
    const pieces = encoding.ids.map((number) => stream.step(number));
    const isEqual = JSON.stringify({ ...placed, offsets: undefined }) === JSON.stringify(encoding);
    return { ...encoding, offsets: isEqual ? inCharacters(placed.offsets ?? [], text, pair) : "other tokens", text: tokenizer.decode(encoding.ids), pieces };
  } catch (error) {
    return { code: /** @type {any} */ (error).code };
  }
});
console.log(JSON.stringify(answers));
