/** Count tensors: `node count.mjs FOLDER` reads `reference.safetensors` and `runs.json`, and prints the counters. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { Counters, countersOf } from "../../web/src/monitor/counters.js";

const folder = process.argv[2];
const read = async (/** @type {string} */ path) => new Uint8Array(readFileSync(join(folder, path)));
/** @param {any} one */
const tensor = ({ data, shape }) => ({ dtype: "float32", shape, data: new Float32Array(new Uint8Array(Buffer.from(data, "base64")).buffer) });
const counters = await countersOf({ read });
const parts = new Counters(counters.reference);
for (const { inputs, outputs } of JSON.parse(readFileSync(join(folder, "runs.json"), "utf8"))) {
  const own = new Counters(counters.reference);
  const named = [inputs, outputs].map((side) => Object.fromEntries(Object.entries(side).map(([name, one]) => [name, tensor(one)])));
  own.observe(named[0], named[1]);
  counters.observe(named[0], named[1]);
  parts.merge(JSON.parse(JSON.stringify(own)));
}
if (JSON.stringify(parts) !== JSON.stringify(counters)) throw new Error("parts do not add up to the whole");
console.log(JSON.stringify(counters));
