#!/usr/bin/env node
// The page's client as a client of the TUF conformance suite: keeps metadata in files, fetches from the suite's server.

import { copyFile, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { fetchFile } from "../../../web/src/sync/read.js";
import { TrustedMetadata, quoted, requirePromised } from "../../../web/src/sync/metadata.js";

const text = { type: "string" };
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "metadata-dir": text,
    "metadata-url": text,
    "target-name": { type: "string", multiple: true },
    "target-dir": text,
    "target-base-url": text,
  },
});
const [command, trusted] = positionals;
const folder = values["metadata-dir"];
const place = (role) => join(folder, `${quoted(role)}.json`);
const kept = {
  read: (role) => readFile(place(role), "utf8").catch(() => undefined),
  async write(role, content) {
    await writeFile(`${place(role)}.new`, content);
    await rename(`${place(role)}.new`, place(role));
  },
};

async function refresh() {
  const base = values["metadata-url"].replace(/\/*$/, "/");
  const metadata = new TrustedMetadata((path, limit) => fetchFile(new URL(base + path), limit), kept, "", Date.now() / 1000);
  await metadata.refresh(() => ({ root: 0, timestamp: 0, snapshot: 0, targets: 0 }));
  return metadata;
}

async function download(metadata, path) {
  const target = await metadata.target(path);
  if (!target) throw new Error(`nobody has ${path} who may`);
  const file = join(values["target-dir"], quoted(path));
  const old = await readFile(file).catch(() => null);
  if (old && (await requirePromised(path, new Uint8Array(old), target).then(() => true, () => false))) return;
  const [digest] = Object.values(target.hashes);
  const pieces = path.split("/");
  if (metadata.root.consistent_snapshot !== false) pieces.push(`${digest}.${pieces.pop()}`);
  const url = values["target-base-url"].replace(/\/*$/, "/") + pieces.map(encodeURIComponent).join("/");
  const bytes = await fetchFile(new URL(url), target.length);
  if (!bytes) throw new Error(`there is no ${url}`);
  await requirePromised(path, bytes, target);
  await mkdir(values["target-dir"], { recursive: true });
  await writeFile(file, bytes);
}

try {
  if (command === "init") {
    await copyFile(trusted, join(folder, "root.json"));
  } else {
    const metadata = await refresh();
    for (const path of command === "download" ? values["target-name"] : []) await download(metadata, path);
  }
} catch (error) {
  console.error(error.stack);
  process.exitCode = 1;
}
