/** Open `.tflite` files with the page's reader, for `zoo.py`: node zoo_tflite.mjs FILE... */

import { readFile } from "node:fs/promises";

import { TfliteFile } from "../web/src/engines/tflite-file.js";

for (const path of process.argv.slice(2)) {
  try {
    const file = new TfliteFile(new Uint8Array(await readFile(path)));
    const shapes = Object.fromEntries([...file.inputs.keys()].map((name) => [name, file.shapeOf(name)]));
    new TfliteFile(file.withShapes(shapes));
  } catch (error) {
    console.error(`error: ${path}: ${error.message}`);
    process.exitCode = 1;
  }
}
