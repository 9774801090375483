// Reads definitions of chains in Node: `node definitions.mjs FILE`, a JSON list of documents; prints what is refused, and the words of steps.

import { readFile } from "node:fs/promises";

import { StepCache, digest } from "../../web/src/chains/cache.js";
import { readChain } from "../../web/src/chains/definition.js";
import { spread, gather } from "../../web/src/chains/spread.js";
import { cutOut, stretch, textOf } from "../../web/src/chains/steps.js";
import { INPUTS, WORKS } from "../../web/src/chains/works.js";

const { documents, crops, stretches, texts } = JSON.parse(await readFile(process.argv[2], "utf8"));
const answers = documents.map((document) => {
  try {
    return { steps: readChain(document).steps.map(({ name }) => name) };
  } catch (error) {
    return { code: error.code, message: error.message };
  }
});
const { single, shape } = spread({ query: ["a", "b"], hit: [["x", "y"], []] }, { query: 1, hit: 2 }, "rank");
const cache = new StepCache({ maxBytes: 400 });
for (let i = 0; i < 4; i++) cache.put(String(i), "x".repeat(60));
const digests = await Promise.all(["a", 1, [1], { a: 1 }, new Float32Array(2), new Int8Array(8), { $bytes: 1 }].map(digest));
console.log(
  JSON.stringify({
    answers,
    works: WORKS,
    inputs: INPUTS,
    spread: [single, gather(shape, ["ax", "ay"])],
    cache: ["0", "1", "2", "3"].map((key) => cache.get(key)?.value.length ?? null),
    digests: [new Set(digests).size, await digest(Symbol("x"))],
    crops: crops.map(([width, height, box, margin]) => {
      const image = { data: Uint8Array.from({ length: width * height * 3 }, (_, i) => i), width, height, channels: 3 };
      const found = cutOut(image, box, margin);
      return [found.width, found.height, [...found.data]];
    }),
    stretches: stretches.map(([count, start, end, margin]) => [...stretch({ samples: Float32Array.from({ length: count }, (_, i) => i), rate: 10 }, start, end, margin).array]),
    texts: texts.map(([value, most]) => {
      try {
        return textOf("x", value, most, "\n\n");
      } catch (error) {
        return error.code;
      }
    }),
  }),
);
