#!/usr/bin/env node
/** Copy the engine files that a page fetches, and the modules of this package, to where a site serves them. */

import { cp, mkdir, readFile, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const USAGE = `Usage: edge-infer-files FOLDER [--engine onnx] [--engine litert] [--engine python] [--webgpu] [--one-file]

Copies the engines into FOLDER/vendor, and the modules, which a bundler that knows no workers leaves out, into
FOLDER/src. Serve FOLDER, and write its address as root: load(url, { root: "/edge-infer/" }).

  --engine NAME  onnx (ONNX Runtime, for .onnx files: 14 MB), litert (LiteRT, for .tflite files: 29 MB) or
                 python (Pyodide, for loadPython: 13 MB, which needs onnx or litert beside it); without it onnx and
                 litert. A page fetches about 2.5 MB of an engine, compressed
  --webgpu       the builds of ONNX Runtime and LiteRT for the GPU, too: 54 MB
  --one-file     edge-infer.js, one file with all modules, in place of FOLDER/src:
                 import { load } from "/edge-infer/edge-infer.js"`;

/** The engines that `--engine` names: parts of `engine-files.json`. */
const ENGINES = ["onnx", "litert", "python"];
const PYTHON = "Python needs the wheel of edge-infer too: pip download --no-deps --dest WHEELS edge-infer; then write loadPython({ root, wheel })";

const require = createRequire(import.meta.url);

/** @param {string} name @returns {Promise<string>} The folder of a package, wherever it was installed. */
async function folderOf(name) {
  for (const modules of require.resolve.paths(name) ?? []) {
    const folder = join(modules, name);
    if (await stat(join(folder, "package.json")).catch(() => null)) return folder;
  }
  throw new Error(`the npm package ${name} is not installed\nhint: npm install edge-infer`);
}

/**
 * @param {string[]} words
 * @returns {{folder: string, parts: string[], isOneFile: boolean, help: boolean} | null} What to copy; null where the words are wrong.
 */
function parsed(words) {
  const options = /** @type {const} */ ({
    engine: { type: "string", multiple: true, default: ENGINES.slice(0, 2) },
    webgpu: { type: "boolean", default: false },
    "one-file": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  });
  let found;
  try {
    found = parseArgs({ args: words, options, allowPositionals: true });
  } catch {
    return null;
  }
  const { engine, webgpu, help } = found.values;
  const isRight = found.positionals.length === 1 && engine.every((name) => ENGINES.includes(name));
  if (!isRight && !help) return null;
  const engines = ENGINES.filter((name) => engine.includes(name));
  const parts = [...engines, ...(webgpu ? ["webgpu"] : []), "store", "generation"];
  return { folder: found.positionals[0] ?? "", parts, isOneFile: found.values["one-file"], help };
}

/**
 * @param {string} part
 * @param {any} packages
 * @param {string} target
 * @param {string[]} [spared] Files that are not needed.
 * @returns {Promise<string>} What was copied, in words.
 */
async function copied(part, packages, target, spared = []) {
  let [count, bytes] = [0, 0];
  for (const [name, files] of Object.entries(packages)) {
    const from = await folderOf(name);
    for (const [source, path] of Object.entries(files)) {
      if (spared.includes(source)) continue;
      const to = join(target, path);
      await mkdir(dirname(to), { recursive: true });
      await cp(join(from, source), to);
      count += 1;
      bytes += (await stat(to)).size;
    }
  }
  return `${part.padEnd(11)}${String(count).padStart(2)} files ${(bytes / 1e6).toFixed(1).padStart(6)} MB`;
}

/** @param {string[]} words @returns {Promise<number>} The exit status. */
async function main(words) {
  const asked = parsed(words);
  if (asked === null || asked.help) {
    (asked === null ? console.error : console.log)(USAGE);
    return asked === null ? 2 : 0;
  }
  const root = resolve(asked.folder);
  const target = join(root, "vendor");
  const modules = join(root, asked.isOneFile ? "edge-infer.js" : "src");
  await mkdir(root, { recursive: true });
  await cp(fileURLToPath(new URL(asked.isOneFile ? "../dist/edge-infer.js" : "../src", import.meta.url)), modules, { recursive: true });
  const list = JSON.parse(await readFile(new URL("../engine-files.json", import.meta.url), "utf8"));
  // The script of that engine is in the one file.
  const spared = asked.isOneFile ? ["dist/ort-wasm-simd-threaded.mjs"] : [];
  for (const part of asked.parts) console.log(await copied(part, list[part], target, spared));
  console.log(`${target}: the engines; ${modules}: the modules`);
  if (asked.parts.includes("python")) console.log(PYTHON);
  if (asked.parts[0] === "python") console.log("loadPython starts ONNX Runtime unless told otherwise: add --engine onnx, or --engine litert and { engines: [\"litert\"] }");
  return 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(`error: ${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
