// Pulls a model as a page does, again and again, into storage in memory that fails at its write number 0, 1, 2, ...
// until one pull goes through, each time from the same start; prints what was active after each.
//
// {address, root, fault: "quota" | "cut" | "none", first, key}: `first` is an address to install from before the pulls,
// `key` the text of a key file. The sha256 of each file that a session would get is printed too.

import { createHash } from "node:crypto";

import { EdgeInferError } from "../../web/src/errors.js";
import { Store } from "../../web/src/cache/store.js";
import { KeyRing } from "../../web/src/sync/sealed.js";
import { StoreModel } from "../../web/src/sync/pull.js";

const { address, first, root, fault, key } = JSON.parse(process.argv[2]);

// Node 20 lacks what every browser that checks Ed25519 has.
globalThis.navigator ??= {};

class Cut extends Error {}

/** @param {Map<string, Uint8Array<ArrayBuffer>>} files @param {number} after @param {string} kind */
function place(files, after, kind) {
  let writes = 0;
  const change = () => {
    if (kind === "cut" && writes >= after) throw new Cut("the tab was closed");
    if (kind === "quota" && writes >= after) throw new DOMException("no room", "QuotaExceededError");
    writes += 1;
  };
  return {
    kind: /** @type {const} */ ("opfs"),
    read: async (/** @type {string} */ name) => files.get(name) ?? null,
    async write(/** @type {string} */ name, /** @type {number} */ offset, /** @type {Uint8Array<ArrayBuffer>} */ bytes) {
      const old = files.get(name) ?? new Uint8Array();
      const whole = new Uint8Array(offset + bytes.length);
      whole.set(old.subarray(0, offset));
      try {
        change();
      } catch (error) {
        // Half of it was written.
        whole.set(bytes.subarray(0, bytes.length >> 1), offset);
        files.set(name, whole.subarray(0, offset + (bytes.length >> 1)));
        throw error;
      }
      whole.set(bytes, offset);
      files.set(name, whole);
    },
    async remove(/** @type {string} */ name) {
      if (kind === "cut") change();
      files.delete(name);
    },
    names: async () => [...files.keys()],
  };
}

/** @param {string} from @param {Map<string, Uint8Array<ArrayBuffer>>} files @param {number} after @param {string} kind */
async function pull(from, files, after, kind) {
  const model = new StoreModel(address, new Store(place(files, after, kind), ""));
  await model.record(); // that of the address, also where the first version comes from elsewhere
  model.at = new URL(from).href.replace(/[^/]*$/, "");
  const pulled = await model.pull({ root, key });
  await model.settle("active");
  if (key) keptFiles = [...files.values()].map((bytes) => Buffer.from(bytes).toString("latin1")).join("");
  return pulled;
}

/** What lay in the storage after the last pull of encrypted weights. */
let keptFiles = "";

/** @param {{files: [string, Uint8Array<ArrayBuffer>][]} | null} pulled */
function shown(pulled) {
  return Object.fromEntries((pulled?.files ?? []).map(([path, bytes]) => [path, createHash("sha256").update(bytes).digest("hex")]));
}

/** @param {Map<string, Uint8Array<ArrayBuffer>>} files */
async function active(files) {
  const model = new StoreModel(address, new Store(place(files, 0, "none"), ""));
  model.ring = await KeyRing.of(key).catch(() => new KeyRing([]));
  return (await model.active())?.version ?? null;
}

const start = new Map();
if (first) await pull(first, start, 0, "none");
const seen = [];
for (let after = 0; after < 300; after++) {
  const files = new Map(start);
  let how = "through";
  const found = await pull(address, files, after, fault).catch((error) => {
    if (!(error instanceof EdgeInferError || error instanceof Cut)) throw error;
    how = error instanceof EdgeInferError ? error.code : "cut";
    return null;
  });
  // The next visit, with nothing wrong any more.
  const between = await active(files);
  const healed = fault === "none" ? null : (await pull(address, files, 0, "none")).version;
  seen.push({ how, version: found?.version ?? null, method: found?.method ?? null, note: found?.note ?? "", active: between, healed, files: shown(found), isSealed: key ? !keptFiles.includes('"inputs"') : null });
  if (fault === "none" || (how === "through" && !found?.note)) break;
}
console.log(JSON.stringify(seen));
