// Run decoders in Node: reads cases as JSON from the file that is named, writes what they gave as JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [, , casesPath, modulePath] = process.argv;
const { Decoder } = await import(pathToFileURL(modulePath));
const module = await WebAssembly.compile(await readFile(new URL("generation.wasm", pathToFileURL(modulePath))));

const hex = (values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString("hex");

/** A source that comes in pieces of odd sizes, as from a network. */
function stream(bytes) {
  let place = 0;
  return new ReadableStream({
    pull(controller) {
      if (place >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(place, place + 1001));
      place += 1001;
    },
  });
}

const found = [];
for (const { path, options, steps } of JSON.parse(await readFile(casesPath, "utf8"))) {
  const results = [];
  try {
    const decoder = await Decoder.open(stream(new Uint8Array(await readFile(path))), { ...options, module });
    for (const { run, copy, top } of steps) {
      try {
        if (copy) decoder.copy(...copy);
        if (run) {
          decoder.run(...run);
          results.push(run[3].map((_, index) => hex(decoder.logits(index))));
        }
        if (top) results.push(decoder.top(...top));
      } catch (error) {
        results.push({ code: error.code, message: error.message });
      }
    }
    decoder.close();
  } catch (error) {
    results.push({ code: error.code, message: error.message });
  }
  found.push(results);
}
process.stdout.write(JSON.stringify(found));
