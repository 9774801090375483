// Prints what the page's client makes of many stores: for each, the version that it would take, or the code of its error.
// The argument is a file of [{store, root}].

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { EdgeInferError } from "../../web/src/errors.js";
import { NO_FLOOR, newest } from "../../web/src/sync/trust.js";

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const seen = [];
for (const { store, root } of cases) {
  const read = async (/** @type {string} */ path, /** @type {number} */ limit) => {
    const data = await readFile(join(store, path)).catch(() => null);
    if (data && data.length > limit) throw new EdgeInferError(`${path} has more than ${limit} bytes`, "fetch_error");
    return data && new Uint8Array(data);
  };
  const start = performance.now();
  const found = await newest(read, "linear", root, NO_FLOOR).then(
    ({ revision }) => ({ version: revision.version }),
    (error) => (error instanceof EdgeInferError ? { code: error.code } : { crash: String(error?.stack ?? error) }),
  );
  seen.push({ ...found, ms: performance.now() - start });
}
console.log(JSON.stringify(seen));
