/** Open a `.tflite` file with the page's reader, for `zoo.py`: node zoo_tflite.mjs FILE */

import { readFile } from "node:fs/promises";

import { TfliteFile } from "../web/src/engines/tflite-file.js";

const file = new TfliteFile(new Uint8Array(await readFile(process.argv[2])));
const shapes = Object.fromEntries([...file.inputs.keys()].map((name) => [name, file.shapeOf(name)]));
new TfliteFile(file.withShapes(shapes));
