// Searches indexes in Node: `node search.mjs FILE`, a JSON list of `{index, queries}`, whose queries are `{query, options}` or `{words}`.

import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

import { SearchIndex } from "../../web/src/vectors/search-index.js";
import { wordsOf } from "../../web/src/vectors/words.js";

const plain = ({ id, score, text, metadata }) => [id, score, text, metadata];
const found = [];
for (const { index: folder, queries } of JSON.parse(await readFile(process.argv[2], "utf8"))) {
  try {
    const index = await SearchIndex.open(pathToFileURL(folder));
    const answers = queries.map(({ query, options, words }) => {
      if (words !== undefined) return wordsOf(words);
      return index.find(Array.isArray(query) ? { ...options, vector: query } : { ...options, ...query }).map(plain);
    });
    found.push({ size: index.size, answers });
  } catch (error) {
    found.push({ error: error.message, code: error.code, stack: error.stack });
  }
}
console.log(JSON.stringify(found));
