#!/usr/bin/env node
/** Copy the engine files that a page fetches, and the modules of this package, to where a site serves them. */

import { cp, mkdir, readFile, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const USAGE = `Usage: edge-infer-files FOLDER [--webgpu]

Copies the engines for ONNX and TFLite into FOLDER/vendor, and the modules, which a bundler that knows no
workers leaves out, into FOLDER/src; --webgpu adds the engines for the GPU. Serve FOLDER, and write its address as root: load(url, { root: "/edge-infer/" }).`;

/** Which parts of `engine-files.json` each option adds. @type {Record<string, string>} */
const PARTS = { "--webgpu": "webgpu" };

const require = createRequire(import.meta.url);

/** @param {string} name @returns {Promise<string>} The folder of a package, wherever it was installed. */
async function folderOf(name) {
  for (const modules of require.resolve.paths(name) ?? []) {
    const folder = join(modules, name);
    if (await stat(join(folder, "package.json")).catch(() => null)) return folder;
  }
  throw new Error(`the npm package ${name} is not installed\nhint: npm install edge-infer`);
}

/** @param {string[]} words @returns {Promise<number>} The exit status. */
async function main(words) {
  const [folder, ...others] = [...words.filter((word) => !word.startsWith("-")), ...words.filter((word) => word.startsWith("-"))];
  if (folder === undefined || folder.startsWith("-") || others.some((word) => !(word in PARTS))) {
    console.error(USAGE);
    return words.includes("--help") ? 0 : 2;
  }
  const root = resolve(folder);
  const target = join(root, "vendor");
  await cp(fileURLToPath(new URL("../src", import.meta.url)), join(root, "src"), { recursive: true });
  const list = JSON.parse(await readFile(new URL("../engine-files.json", import.meta.url), "utf8"));
  const parts = ["wasm", "store", ...others.map((word) => PARTS[word])];
  let [count, bytes] = [0, 0];
  for (const part of parts) {
    for (const [name, files] of Object.entries(list[part])) {
      const from = await folderOf(name);
      for (const [source, path] of Object.entries(files)) {
        const to = join(target, path);
        await mkdir(dirname(to), { recursive: true });
        await cp(join(from, source), to);
        count += 1;
        bytes += (await stat(to)).size;
      }
    }
  }
  console.log(`${target}: ${count} files, ${(bytes / 1e6).toFixed(1)} MB; ${join(root, "src")}: the modules`);
  return 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(`error: ${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
