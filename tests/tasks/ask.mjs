/** Ask a pipeline in Node: `node ask.mjs BUNDLE FILE`, a JSON list of values; an image is `{image: {width, height, channels, data}}`, data in base64. */

import { readFileSync } from "node:fs";

import { pipeline } from "../../web/src/index.js";

const [bundle, file] = process.argv.slice(2);
/** @param {any} value @returns {any} */
function read(value) {
  if (!value?.image) return value;
  const { data, ...facts } = value.image;
  return { ...facts, data: new Uint8Array(Buffer.from(data, "base64")) };
}
/** @param {any} value @returns {any} */
function plain(value) {
  return value?.dtype ? Array.from(value.data, Number) : value;
}

try {
  const ask = await pipeline(bundle);
  const answers = [];
  for (const value of JSON.parse(readFileSync(file, "utf-8"))) answers.push(plain(await ask(read(value))));
  await ask.dispose();
  console.log(JSON.stringify({ answers }));
} catch (error) {
  const { code, message } = /** @type {any} */ (error);
  console.log(JSON.stringify({ code, message }));
}
