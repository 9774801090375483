/** Prove pipelines by their vectors in Node: `node prove.mjs BUNDLE...`; for each what was thrown is printed as JSON, null for nothing. */

import { pipeline } from "../../web/src/index.js";

const said = [];
for (const bundle of process.argv.slice(2)) {
  try {
    const made = await pipeline(bundle, { selfTest: true });
    await made.selfTest();
    await made.dispose();
    said.push(null);
  } catch (error) {
    const { code, message, details } = /** @type {any} */ (error);
    said.push({ code, message, differences: details?.differences ?? [] });
  }
}
console.log(JSON.stringify(said));
