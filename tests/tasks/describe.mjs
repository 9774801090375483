/** Read folders of the Hub: `node describe.mjs FILE`, a JSON list of `{files, inputs, outputs, task}`, the files as text. */

import { readFileSync } from "node:fs";

import { readDefinition } from "../../web/src/tasks/definition.js";
import { findHub } from "../../web/src/tasks/sources/huggingface.js";

/** @param {any} asked */
function found({ files, inputs, outputs, task }) {
  try {
    const bytes = Object.entries(files).map(([name, text]) => [name, new TextEncoder().encode(text)]);
    const made = findHub(Object.fromEntries(bytes), { inputs, outputs }, task ?? undefined);
    if (made) readDefinition(made.task, made.pipeline);
    return made && { ...made, files: Object.keys(made.files).sort() };
  } catch (error) {
    const { code, hint, stack } = /** @type {any} */ (error);
    return { code: code ?? stack, hint };
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], "utf-8")).map(found)));
