/** Encode and decode texts with the page's tokenizer: `node encode.mjs FOLDER`, which has tokenizer.json and calls.json. */

import { readFileSync } from "node:fs";

import { Tokenizer } from "../../web/src/tasks/text/tokenizer.js";

const [folder] = process.argv.slice(2);
const tokenizer = new Tokenizer(readFileSync(`${folder}/tokenizer.json`));
const answers = JSON.parse(readFileSync(`${folder}/calls.json`, "utf8")).map((/** @type {any} */ { text, pair, options }) => {
  try {
    const encoding = tokenizer.encode(text, pair, options);
    const stream = tokenizer.decodeStream();
    const pieces = encoding.ids.map((number) => stream.step(number));
    return { ...encoding, text: tokenizer.decode(encoding.ids), pieces };
  } catch (error) {
    return { code: /** @type {any} */ (error).code };
  }
});
console.log(JSON.stringify(answers));
