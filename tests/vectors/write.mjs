// Writes an index in Node as a page does: `node write.mjs FILE FOLDER`, with documents and a vector for each text.

import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { readPieces } from "../../web/src/vectors/documents.js";
import { OwnIndex } from "../../web/src/vectors/own-index.js";
import { writeSegment } from "../../web/src/vectors/segment-writer.js";

const [, , file, target] = process.argv;
const asked = JSON.parse(await readFile(file, "utf8"));
const folder = {
  isKept: true,
  read: (path) => readFile(join(target, path)).then((bytes) => new Uint8Array(bytes), () => null),
  write: async (path, bytes) => {
    await mkdir(dirname(join(target, path)), { recursive: true });
    await writeFile(join(target, path), bytes);
  },
  remove: (path) => rm(join(target, path), { force: true }),
  clear: () => rm(target, { recursive: true, force: true }),
  alone: (work) => work(),
};
const vectorOf = (text) => Float32Array.from({ length: asked.dimension }, (_, i) => Math.sin((i + 1) * [...text].reduce((sum, one) => (sum * 31 + one.codePointAt(0)) % 9973, 7)));
let embedded = 0;
const embed = async (texts) => {
  embedded += texts.length;
  return texts.map(vectorOf);
};
const embedder = { embed, dimension: asked.dimension, embedding: asked.embedding };
const index = await OwnIndex.open(folder, embedder);
const said = [];
const filled = [await index.add(asked.documents, { onProgress: (...one) => said.push(one) })];
filled.push(await index.add(asked.documents), await index.add(asked.changed));
const removed = await index.remove(asked.gone);
const again = await OwnIndex.open(folder, embedder);
const hits = await again.search(asked.query, { k: 5, mode: "hybrid" });
const stopped = await again.add([{ name: "late.txt", text: "late" }], { signal: AbortSignal.abort() }).then(() => "done", ({ name }) => name);
const refused = await Promise.all(asked.refused.map(({ name, text }) => again.add([{ name, text }]).then(() => "taken", ({ code }) => code)));
const later = { ...embedder, embedding: { ...asked.embedding, revision: "0".repeat(64) } };
const asks = await OwnIndex.open(folder, later).then(() => "opened", ({ code, message }) => `${code}: ${message}`);
const renewed = await OwnIndex.open(asked.renew ? folder : { ...folder, read: async () => null }, later, { renew: true });
console.log(
  JSON.stringify({
    pieces: asked.documents.map(({ name, text }) => readPieces(name, text)),
    filled,
    removed,
    documents: again.documents(),
    embedded,
    said: said.length,
    hits: hits.map(({ id, score, text }) => [id, score, text]),
    vectors: asked.texts.map((text) => [...vectorOf(text)]),
    segment: Buffer.from(
      writeSegment({ dimension: asked.dimension, metric: asked.metric, words: true }, asked.texts.map((_, i) => 3 * i), asked.texts.map(vectorOf), asked.texts.map((text, i) => ({ text, metadata: asked.metadata[i] }))),
    ).toString("base64"),
    stopped,
    asks,
    renewed: renewed.documents(),
    refused,
  }),
);
