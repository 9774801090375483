/** The layout of `src/`: modules import downwards only, from room to room and inside each room. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SRC = fileURLToPath(new URL("../src/", import.meta.url));
/** The rooms and the modules that stand alone, from the top: each may import those below it. */
const ROOMS = ["index.js", "page", "chains", "generation", "vectors", "monitor", "tasks", "sync", "engines", "bundle", "cache", "fetch", "tensors.js", "service-worker.js", "errors.js", "version.js"];

/** @returns {Map<string, string[]>} What each module imports: statically, lazily, for types, and as a worker. */
function imports() {
  const modules = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".js"));
  const pattern = /(?:\bfrom |\bimport ?\(|\bimport |new URL\()"(\.{1,2}\/[^"]+\.js)"/g;
  return new Map(
    modules.map((path) => {
      const found = [...readFileSync(join(SRC, path), "utf8").matchAll(pattern)];
      return [path, [...new Set(found.map(([, target]) => normalize(join(dirname(path), target))))].filter((target) => target !== path)];
    }),
  );
}

test("every import leads to a module that is there, and no chain of imports leads back to its start", () => {
  const graph = imports();
  /** @param {string} module @param {string[]} chain */
  const follow = (module, chain) => {
    assert.ok(graph.has(module), `${chain.at(-1)} imports ${module}, which is missing`);
    assert.ok(!chain.includes(module), `a circle: ${[...chain.slice(chain.indexOf(module)), module].join(" -> ")}`);
    if (seen.has(module)) return;
    for (const target of graph.get(module) ?? []) follow(target, [...chain, module]);
    seen.add(module);
  };
  const seen = new Set();
  for (const module of graph.keys()) follow(module, []);
  assert.ok(seen.size > 30);
});

test("a room imports only itself and the rooms below it", () => {
  const floorOf = (/** @type {string} */ path) => ROOMS.indexOf(path.split(/[\\/]/)[0]);
  for (const [module, targets] of imports()) {
    assert.notEqual(floorOf(module), -1, `${module} is in no room`);
    for (const target of targets) assert.ok(floorOf(target) >= floorOf(module), `${module} imports ${target}, of a room above it`);
  }
});

test("a plain load fetches no module for stores or Python", () => {
  const needed = new Set(["index.js", "page/worker.js"]);
  for (const module of needed) {
    for (const [, target] of readFileSync(join(SRC, module), "utf8").matchAll(/^import .*"(\.{1,2}\/.*\.js)";/gm)) {
      needed.add(normalize(join(dirname(module), target)));
    }
  }

  assert.ok(needed.has("bundle/bundle.js"));
  assert.deepEqual([...needed].filter((module) => /^sync|python|pyodide|live|image|search/.test(module)), []);
});

test("what bundles a page leaves alone what is imported from an address of the site, and looks for nothing of Node", () => {
  let count = 0;
  for (const module of imports().keys()) {
    const code = readFileSync(join(SRC, module), "utf8").replaceAll(/\/\*\*.*?\*\//gs, "");
    for (const [, target] of code.matchAll(/\bimport\(([^)]*)/g)) {
      if (/^"\.{1,2}\//.test(target)) continue;
      count += 1;
      assert.match(target, /webpackIgnore: true .*turbopackIgnore: true .*@vite-ignore/, module);
      assert.doesNotMatch(target, /"/, `${module}: esbuild looks for ${target}`);
    }
  }
  assert.ok(count >= 5, `${count} found`);
});

test("every module says its job in its first sentence", () => {
  for (const module of imports().keys()) {
    const text = readFileSync(join(SRC, module), "utf8");
    assert.match(text, /^\/\*\*\s+(\* )?[A-Z]/, `${module} has no docstring at its start`);
  }
});
