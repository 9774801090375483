/**
 * Prove pipelines by their vectors in Node: `node prove.mjs [--load] BUNDLE...`; for each what was thrown is printed as JSON, null for
 * nothing. With `--load` by the option of `pipeline`, which asks for golden examples too.
 */

import { pipeline } from "../../web/src/index.js";

const said = [];
const selfTest = process.argv[2] === "--load";
for (const bundle of process.argv.slice(selfTest ? 3 : 2)) {
  try {
    const made = await pipeline(bundle, { selfTest });
    if (!selfTest) await made.selfTest();
    await made.dispose();
    said.push(null);
  } catch (error) {
    const { code, message, details } = /** @type {any} */ (error);
    said.push({ code, message, differences: details?.differences ?? [] });
  }
}
console.log(JSON.stringify(said));
