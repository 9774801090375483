/** A generator that is called like a pipeline, `pipeline("text-generation", url)`, with the answers of transformers. */

import { EdgeInferError } from "../errors.js";
import { openGenerator } from "./generator.js";

/** @typedef {import("./generator.js").Generator} Generator */
/** @typedef {{task: string, labels: readonly string[], generator: Generator, dispose: () => Promise<void>}} Parts */
/** @typedef {((inputs: any, args?: Record<string, any>) => Promise<any>) & Parts} TextPipeline */

const TASK = "text-generation";
const TAKEN = ["apiKey", "context", "keep", "onProgress", "root", "signal", "threads", "variant"];

/**
 * @param {string} url
 * @param {Record<string, any> & {root: string}} options What `generate` takes; `device` and `backend` may say what is so in any case.
 * @returns {Promise<TextPipeline>} Give it a text, the messages of a conversation, or a list of either, and the options of
 *   `Generator.stream`, in camelCase or as Python names them, and `return_full_text`.
 * @throws {EdgeInferError} `input_error`: an option is not of generation. And what `generate` throws.
 */
export async function textPipeline(url, options) {
  for (const [name, value] of Object.entries(options)) {
    const isSo = value === undefined || (name === "device" && ["auto", "wasm"].includes(value));
    if (isSo) delete options[name];
    else if (!TAKEN.includes(name)) {
      throw new EdgeInferError(`text is generated without \`${name}\``, "input_error", { hint: `it takes ${TAKEN.join(", ")}` });
    }
  }
  const generator = await openGenerator(url, options);
  const call = (/** @type {any} */ inputs, /** @type {Record<string, any>} */ args = {}) => answers(generator, inputs, args);
  const dispose = () => generator.dispose();
  return Object.assign(call, { task: TASK, labels: [], generator, dispose, [Symbol.asyncDispose ?? "dispose"]: dispose });
}

/** @param {Generator} generator @param {any} inputs @param {Record<string, any>} args */
async function answers(generator, inputs, args) {
  const { return_full_text: isWhole = true, ...given } = args;
  const options = Object.fromEntries(Object.entries(given).map(([name, value]) => [name.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase()), value]));
  const isMany = Array.isArray(inputs) && !isConversation(inputs);
  const found = [];
  for (const one of isMany ? inputs : [inputs]) {
    if (typeof one !== "string" && !isConversation(one)) {
      throw new EdgeInferError(`${TASK} takes texts and messages, not ${typeof one}`, "input_error", { hint: '[{ role: "user", content: "Hello" }]' });
    }
    const { text } = await generator.stream(one, options).result();
    const whole = typeof one === "string" ? one + text : [...one, { role: "assistant", content: text }];
    found.push([{ generated_text: isWhole ? whole : text }]);
  }
  return isMany ? found : found[0];
}

/** @param {any} value */
function isConversation(value) {
  return Array.isArray(value) && typeof value[0]?.role === "string";
}
