// Time the page's decoder and onnxruntime-web in Node, in turn, each with one thread:
// generate_peers.mjs MODULE FILE ROUNDS MODEL.onnx...; writes milliseconds of the processor as JSON.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [, , modulePath, path, rounds, ...models] = process.argv;
const require = createRequire(new URL("../web/package.json", import.meta.url));
const ort = require("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const { Decoder } = await import(pathToFileURL(modulePath));
const module = await WebAssembly.compile(await readFile(new URL("generation.wasm", pathToFileURL(modulePath))));
const decoder = Decoder.of(new Uint8Array(await readFile(path)), { context: 1024, module });
const PROMPT = Array.from({ length: 512 }, (_, i) => (i * 31) % 16384);
const STEPS = 16;

/** @param {() => unknown} call */
async function timed(call) {
  const start = process.cpuUsage();
  await call();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e3;
}

const ours = {
  cached: 0,
  async run(tokens) {
    decoder.run(tokens, tokens.map(() => 0), tokens.map((_, i) => this.cached + i), [tokens.length - 1]);
    decoder.top(0, 1);
    this.cached += tokens.length;
  },
  clear() {
    this.cached = 0;
  },
};

/** A model that is fed its own cache, as transformers.js does. */
async function peer(model) {
  const session = await ort.InferenceSession.create(new Uint8Array(await readFile(model)), { executionProviders: ["wasm"] });
  const names = session.inputNames.filter((name) => name !== "tokens");
  let cache = {};
  const made = {
    clear() {
      cache = Object.fromEntries(names.map((name) => [name, new ort.Tensor("float32", new Float32Array(0), [1, 3, 0, 64])]));
    },
    async run(tokens) {
      const found = await session.run({ tokens: new ort.Tensor("int64", BigInt64Array.from(tokens, BigInt), [1, tokens.length]), ...cache });
      cache = Object.fromEntries(names.map((name) => [name, found[`new_${name}`]]));
    },
  };
  return made;
}

async function measured(one) {
  const step = async () => {
    const times = [];
    for (let i = 0; i < STEPS; i += 1) times.push(await timed(() => one.run([5])));
    return times.sort((a, b) => a - b)[STEPS >> 1];
  };
  one.clear();
  await one.run(PROMPT.slice(0, 16));
  const short = await step();
  one.clear();
  const prefill = await timed(() => one.run(PROMPT));
  return { short, prefill, long: await step() };
}

const sides = { ours };
for (const model of models) sides[basename(model, ".onnx")] = await peer(model);
const found = Object.fromEntries(Object.keys(sides).map((name) => [name, []]));
for (let round = 0; round < Number(rounds); round += 1) for (const [name, side] of Object.entries(sides)) found[name].push(await measured(side));
process.stdout.write(JSON.stringify({ sides: found, engine: ort.env.versions?.web ?? "" }));
