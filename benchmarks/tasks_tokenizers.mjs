/**
 * The page's tokenizer and `@huggingface/tokenizers` in one Node: `node tasks_tokenizers.mjs FOLDER PEER ROUNDS`. FOLDER has KIND.json
 * files and texts.json (`{check: [], timed: []}`); what both give, and the processor's seconds per round, are printed as JSON.
 */

import { readFileSync, readdirSync, writeFileSync } from "node:fs";

import { Tokenizer } from "../web/src/tasks/text/tokenizer.js";

const [folder, peer, rounds] = process.argv.slice(2);
const { Tokenizer: Theirs } = await import(peer);
const { check, timed } = JSON.parse(readFileSync(`${folder}/texts.json`, "utf8"));
const LENGTH = { truncation: { maxLength: 32 }, padding: { multipleOf: 8, padId: 0 } };

/** @param {() => void} work @returns {number} Seconds of the processor. */
function spent(work) {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

/** @param {[number, number][]} offsets @param {string} text */
function inCharacters(offsets, text) {
  const counts = [0];
  for (const character of text) for (let unit = 0; unit < character.length; unit++) counts.push(/** @type {number} */ (counts.at(-1)) + (unit ? 0 : 1));
  return offsets.map(([start, end]) => [counts[start], counts[end]]);
}

/** @type {Record<string, any>} */
const found = {};
for (const file of readdirSync(folder).filter((name) => name.endsWith(".json") && name !== "texts.json")) {
  const data = readFileSync(`${folder}/${file}`);
  /** @type {any} */
  let ours;
  const load = spent(() => (ours = new Tokenizer(data)));
  const document = JSON.parse(data.toString("utf8"));
  const made = () => new Theirs({ ...document, truncation: null, padding: null }, {});
  /** @type {any} */
  let theirs = null;
  try {
    theirs = made();
  } catch (error) {
    console.error(`${file}: ${error}`); // a part that it does not know, such as Nmt
  }
  const plain = { truncation: null, padding: null };
  const answers = check.map((/** @type {string} */ text) => {
    const { ids, offsets } = ours.encode(text, null, { ...plain, offsets: true });
    const cut = ours.encode(text, null, LENGTH);
    return [ids, inCharacters(offsets, text), ours.decode(ids), cut.ids, cut.attentionMask];
  });
  const others = check.map((/** @type {string} */ text) => {
    if (!theirs) return "refused";
    try {
      return Array.from(theirs.encode(text).ids);
    } catch (error) {
      return String(error);
    }
  });
  /** @type {Record<string, number[]>} */
  const seconds = { ours: [], theirs: [] };
  for (let round = 0; theirs && round <= Number(rounds); round++) {
    const [mine, other] = [new Tokenizer(data), made()]; // both remember words
    const each = {
      ours: spent(() => timed.forEach((/** @type {string} */ text) => mine.encode(text, null, plain))),
      theirs: spent(() => timed.forEach((/** @type {string} */ text) => other.encode(text))),
    };
    if (round) for (const side of Object.keys(each)) seconds[side].push(each[/** @type {"ours" | "theirs"} */ (side)]);
  }
  found[file.slice(0, -5)] = { load, answers, others, seconds };
}
writeFileSync(`${folder}/found`, JSON.stringify(found));
