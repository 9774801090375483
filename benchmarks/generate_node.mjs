// Time the page's decoder in Node: generate_node.mjs MODULE FILE ROUNDS; writes milliseconds as JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [, , modulePath, path, rounds] = process.argv;
const { Decoder } = await import(pathToFileURL(modulePath));
const module = await WebAssembly.compile(await readFile(new URL("generation.wasm", pathToFileURL(modulePath))));
const decoder = Decoder.of(new Uint8Array(await readFile(path)), { context: 1024, module });
const PROMPT = Array.from({ length: 512 }, (_, i) => (i * 31) % 16384);

/** Processor time of a call, so that other work on the machine counts little. */
function timed(call) {
  const start = process.cpuUsage();
  call();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e3;
}

const found = [];
for (let round = 0; round < Number(rounds); round += 1) {
  const places = PROMPT.map((_, i) => i);
  const prefill = timed(() => decoder.run(PROMPT, PROMPT.map(() => 0), places, [511]));
  const decode = (start) => {
    const steps = Array.from({ length: 24 }, (_, i) =>
      timed(() => {
        decoder.run([5], [0], [start + i], [0]);
        decoder.top(0, 1);
      }),
    );
    return steps.sort((a, b) => a - b)[12];
  };
  found.push({ prefill, short: decode(16), long: decode(512) });
}
process.stdout.write(JSON.stringify({ rounds: found, bytes: decoder.memory.buffer.byteLength }));
