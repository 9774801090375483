/** Build `dist/edge-infer.js`: all modules, their kernels and the script of the engine for ONNX in one file. Its wasm file stays apart. */

import { mkdir, readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const WEB = fileURLToPath(new URL("../", import.meta.url));
// What a thread does with the script, in the pinned version: it starts with it, and asks Node at its end, by an `await` that a service worker refuses.
const [STARTS, ENDS] = ["new Worker(new URL(import.meta.url),", 'if(isNode)isPthread=(await import("worker_threads")).workerData==="em-pthread";'];

/**
 * @param {string} text
 * @param {string} old
 * @param {string} other
 * @returns {string}
 */
function replaced(text, old, other) {
  if (text.split(old).length !== 2) throw new Error(`the script of onnxruntime-web has changed: \`${old}\` is not in it once`);
  return text.replace(old, () => other);
}

/** @type {import("esbuild").Plugin} */
const inlining = {
  name: "inlining",
  setup({ onLoad }) {
    onLoad({ filter: /ort-wasm-simd-threaded\.mjs$/ }, async ({ path }) => {
      const text = replaced(await readFile(path, "utf8"), STARTS, "new Worker(moduleArg.threadScript,");
      return { contents: replaced(text, ENDS, "") };
    });
    onLoad({ filter: /[/\\](kernels|search-index)\.js$/ }, async ({ path }) => {
      let contents = await readFile(path, "utf8");
      for (const [form, name] of contents.matchAll(/new URL\("\.\/([a-z-]+\.wasm)", import\.meta\.url\)/g)) {
        const bytes = await readFile(join(dirname(path), name));
        contents = contents.replace(form, () => `new URL("data:application/wasm;base64,${bytes.toString("base64")}")`);
      }
      return { contents };
    });
  },
};

await mkdir(join(WEB, "dist"), { recursive: true });
const { metafile } = await build({
  entryPoints: [join(WEB, "one-file/entry.js")],
  outfile: join(WEB, "dist/edge-infer.js"),
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2023",
  legalComments: "linked",
  external: ["module", "worker_threads"],
  plugins: [inlining],
  metafile: true,
  banner: { js: "/* edge-infer, Apache-2.0; with onnxruntime-web's script, MIT. Built by web/one-file/build.js. */" },
});
for (const [path, { bytes }] of Object.entries(metafile.outputs)) {
  if (path.endsWith(".js")) console.log(`${basename(path)}  ${(bytes / 1e3).toFixed(0)} kB`);
}
