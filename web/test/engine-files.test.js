/** `edge-infer-files` copies what a site needs, and nothing for engines that it does not use. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const COMMAND = fileURLToPath(new URL("../bin/edge-infer-files.js", import.meta.url));
let folder = "";

before(() => {
  folder = mkdtempSync(join(tmpdir(), "engine-files-"));
});
after(() => rmSync(folder, { recursive: true }));

/** @param {string[]} words */
const run = (...words) => spawnSync(process.execPath, [COMMAND, ...words], { encoding: "utf8" });

test("one engine is copied alone, beside the modules, and its size is told", () => {
  const site = join(folder, "one");

  const done = run(site, "--engine", "onnx");

  assert.equal(done.status, 0, done.stderr);
  assert.deepEqual(readdirSync(join(site, "vendor")).sort(), ["LICENSES", "jinja", "onnxruntime-web", "zstddec"]);
  assert.ok(readdirSync(join(site, "src")).includes("index.js"));
  const names = readdirSync(join(site, "vendor/onnxruntime-web"));
  const bytes = names.reduce((sum, name) => sum + statSync(join(site, "vendor/onnxruntime-web", name)).size, 0);
  assert.match(done.stdout, new RegExp(`^onnx +${names.length} files +${(bytes / 1e6).toFixed(1)} MB$`, "m"));
});

test("without a choice both engines are copied", () => {
  const site = join(folder, "both");

  assert.equal(run(site).status, 0);

  assert.deepEqual(readdirSync(join(site, "vendor")).sort(), ["LICENSES", "jinja", "litert", "onnxruntime-web", "zstddec"]);
});

test("wrong words copy nothing and show how the command is used", () => {
  for (const words of [[], ["--engine", "onnx"], [join(folder, "x"), "--engine", "tensorflow"], [join(folder, "x"), "--gpu"], ["a", "b"]]) {
    const done = run(...words);
    assert.equal(done.status, 2, words.join(" "));
    assert.match(done.stderr, /^Usage: edge-infer-files FOLDER/);
  }
  assert.ok(!readdirSync(folder).includes("x"));
});
