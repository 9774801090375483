/** Run steps of pipelines on given values: `node run_steps.mjs FILE`, a JSON list of cases; the answers are printed as JSON. */

import { readFileSync } from "node:fs";

import { readDefinition } from "../../web/src/tasks/definition.js";
import { Item } from "../../web/src/tasks/item.js";
import { Place } from "../../web/src/tasks/place.js";
import { prepareChain, readStep } from "../../web/src/tasks/steps.js";
import { arrayOver } from "../../web/src/tensors.js";

const bytesOf = (/** @type {string} */ text) => new Uint8Array(Buffer.from(text, "base64"));
const textOf = (/** @type {any} */ data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");

/** @param {any} value @returns {any} What the JSON stands for. */
function read(value) {
  switch (value?.kind) {
    case "image":
      return { ...value, data: bytesOf(value.data) };
    case "sound":
      return { samples: arrayOver("float32", bytesOf(value.data).slice()), rate: value.rate };
    case "tensor":
      return { dtype: value.dtype, shape: value.shape, data: arrayOver(value.dtype, bytesOf(value.data).slice()) };
    case "bytes":
      return bytesOf(value.data);
    case "outputs":
      return Object.fromEntries(Object.entries(value.tensors).map(([name, one]) => [name, read(one)]));
    case "detections":
      return value.found;
    default:
      return value;
  }
}

/** @param {any} value @returns {any} */
function write(value) {
  if (value === null || typeof value !== "object") return value;
  if ("dtype" in value && "data" in value) return { kind: "tensor", dtype: value.dtype, shape: value.shape, data: textOf(value.data) };
  if ("samples" in value) return { kind: "sound", rate: value.rate, data: textOf(value.samples) };
  if ("channels" in value && ArrayBuffer.isView(value.data)) {
    return { kind: "image", width: value.width, height: value.height, channels: value.channels, data: textOf(value.data) };
  }
  if (Array.isArray(value)) return value.map(write);
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, write(one)]));
}

/** @param {any} given */
async function answer({ steps = [], value, place = {}, item: facts = {}, args = {}, definition }) {
  const { inputs = [], outputs = [], labels = [], input = "", files = {} } = place;
  const read_ = async (/** @type {string} */ path) => new Uint8Array(readFileSync(files[path]));
  const here = new Place(read_, labels, inputs, outputs, input);
  const item = Object.assign(new Item(args), facts);
  item.geometry = item.geometry.map((/** @type {any} */ [scaleX, scaleY, left, top]) => ({ scaleX, scaleY, left, top }));
  try {
    if (definition) readDefinition("image-classification", definition);
    let made = read(value);
    const chain = steps.map((/** @type {any} */ entry, /** @type {number} */ i) => readStep(entry, `steps[${i}]`));
    for (const apply of await prepareChain(chain, here)) made = await apply(made, item);
    return { answer: write(made), geometry: item.geometry.map(({ scaleX, scaleY, left, top }) => [scaleX, scaleY, left, top]) };
  } catch (error) {
    if (!(/** @type {any} */ (error).code)) throw error;
    const { code, message, hint } = /** @type {any} */ (error);
    return { code, message, hint };
  }
}

const answers = [];
for (const one of JSON.parse(readFileSync(process.argv[2], "utf8"))) answers.push(await answer(one));
console.log(JSON.stringify(answers));
