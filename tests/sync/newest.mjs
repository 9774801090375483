// Prints what the page's client makes of a store in a folder: the version and the floor, or the code of its error; and
// what it has verified and keeps, by role.

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { EdgeInferError } from "../../web/src/errors.js";
import { NO_FLOOR, newest } from "../../web/src/sync/trust.js";

const { store, model, root, floor, device, now_s, kept: texts = {} } = JSON.parse(process.argv[2]);

async function read(path, limit) {
  const data = await readFile(join(store, path)).catch(() => null);
  if (data && data.length > limit) throw new EdgeInferError(`${path} has more than ${limit} bytes`, "fetch_error");
  return data && new Uint8Array(data);
}

const kept = { read: async (role) => texts[role], write: async (role, text) => void (texts[role] = text) };
const answer = await newest(read, model, root, { ...NO_FLOOR, ...floor }, { device, now_s, kept }).then(
  ({ revision, floor: seen, stage }) => ({ version: revision.version, floor: seen, stage, kept: texts }),
  (error) => ({ code: error.code ?? "crash", message: error.stack, kept: texts }),
);
console.log(JSON.stringify(answer));
