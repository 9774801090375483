// How fast a page unpacks: `node sync_decode.mjs FOLDER` with pack, base and what it gives; prints MB of result a second.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { unpack } from "../web/src/sync/pack.js";
import { openZstd } from "../web/src/sync/zstd.js";

const [folder, root] = process.argv.slice(2);
const read = (name) => new Uint8Array(readFileSync(join(folder, name)));
const [pack, base] = [read("pack"), read("base")];
const files = JSON.parse(readFileSync(join(folder, "files.json"), "utf8"));
const decoder = await openZstd(root);
const times = [];
for (let round = 0; round < 5; round++) {
  const start = process.cpuUsage();
  const made = await unpack(pack, files, async () => base, decoder);
  const { user, system } = process.cpuUsage(start);
  times.push((user + system) / 1e6);
  for (const { path, sha256 } of files) {
    if (createHash("sha256").update(made.get(path)).digest("hex") !== sha256) throw new Error(path);
  }
}
const bytes = files.reduce((sum, { size }) => sum + size, 0);
console.log(JSON.stringify({ mb_s: bytes / 1e6 / Math.min(...times), node: process.version }));
