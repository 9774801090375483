/** Ask a pipeline of transformers.js: `node ask.mjs SERVER CACHE TASK MODEL INPUT`; the answer is printed as JSON. */

import { env, pipeline } from "@huggingface/transformers";

const [server, cache, task, model, input] = process.argv.slice(2);
env.allowLocalModels = false;
env.cacheDir = cache;
env.remoteHost = server;
env.remotePathTemplate = "models/{model}/";
const ask = await pipeline(task, model, { dtype: "fp32" });
console.log(JSON.stringify(await ask(input)));
