/** Write folders of this package once more, their scripts and styles without comments and spaces: node minify.js TO FOLDER... */

import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { transform } from "esbuild";

const WEB = fileURLToPath(new URL("./", import.meta.url));
const LOADERS = /** @type {const} */ ({ ".js": "js", ".css": "css" });

const [to, ...parts] = process.argv.slice(2);
for (const part of parts) {
  const folder = join(to, part);
  await cp(join(WEB, part), folder, { recursive: true });
  for (const name of await readdir(folder, { recursive: true })) {
    const loader = LOADERS[/** @type {keyof typeof LOADERS} */ (extname(name))];
    if (!loader) continue;
    const path = join(folder, name);
    // File by file, and for the newest engines: the modules, their names and what they ask of a browser stay as they are.
    const { code } = await transform(await readFile(path, "utf8"), { loader, minify: true, target: "esnext", ...(loader === "js" ? { format: "esm" } : {}) });
    await writeFile(path, code);
  }
}
