/** Read a bundle that is dropped on the page, as a folder or as a zip file: its files, each compared with its hash. */

import { EdgeInferError } from "../../src/index.js";
import { parseManifest } from "../../src/bundle/manifest.js";
import { sha256 } from "../../src/fetch/sha256.js";

/** @typedef {Map<string, Uint8Array<ArrayBuffer>>} Files */

/** What a page can hold, and the most files that a bundle has. */
const [MAX_BYTES, MAX_FILES] = [2e9, 10_000];
const [END, ENTRY] = [0x06054b50, 0x02014b50];
const MANIFEST = "manifest.json";
const wrong = (/** @type {string} */ message, hint = "copy the bundle again") => new EdgeInferError(message, "bundle_error", { hint });

/**
 * @param {FileSystemDirectoryEntry} folder
 * @returns {Promise<Files>}
 * @throws {EdgeInferError} `bundle_error`: it is too large, or a file cannot be read.
 */
export async function readFolder(folder) {
  /** @type {Files} */
  const files = new Map();
  let bytes = 0;
  /** @param {FileSystemDirectoryEntry} place @param {string} path */
  const walk = async (place, path) => {
    const reader = place.createReader();
    for (;;) {
      /** @type {FileSystemEntry[]} */
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (some.length === 0) return;
      for (const one of some) {
        if (one.isDirectory) await walk(/** @type {FileSystemDirectoryEntry} */ (one), `${path}${one.name}/`);
        else {
          /** @type {File} */
          const file = await new Promise((resolve, reject) => /** @type {FileSystemFileEntry} */ (one).file(resolve, reject));
          bytes += file.size;
          if (bytes > MAX_BYTES || files.size >= MAX_FILES) throw tooLarge(folder.name);
          files.set(path + one.name, new Uint8Array(await file.arrayBuffer()));
        }
      }
    }
  };
  await walk(folder, "");
  return files;
}

/** @param {string} name */
function tooLarge(name) {
  return wrong(`${name} is larger than a page can hold: 2 GB, or ${MAX_FILES} files`, "look at it on your machine: `edge-infer info BUNDLE`");
}

/**
 * Read a zip file: entries that are stored or deflated (APPNOTE.TXT, sections 4.3.7 to 4.3.16), without ZIP64.
 *
 * @param {File} file
 * @returns {Promise<Files>} Without the folder that all of them lie in, where there is one.
 * @throws {EdgeInferError} `bundle_error`: it is cut short, or says of itself what does not hold.
 */
export async function readZip(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const view = new DataView(bytes.buffer);
  let end = bytes.length - 22;
  while (end >= Math.max(0, bytes.length - 65_557) && view.getUint32(end, true) !== END) end--;
  if (end < 0 || view.getUint32(end, true) !== END) throw wrong(`${file.name} is no zip file, or was cut short`);
  /** @type {Files} */
  const files = new Map();
  try {
    let [place, total] = [view.getUint32(end + 16, true), 0];
    const count = view.getUint16(end + 10, true);
    if (count > MAX_FILES) throw tooLarge(file.name);
    for (let i = 0; i < count; i++) {
      if (view.getUint32(place, true) !== ENTRY) throw new RangeError("no entry");
      const [method, packed, size, start] = [view.getUint16(place + 10, true), ...[20, 24, 42].map((at) => view.getUint32(place + at, true))];
      const [named, extra, said] = [28, 30, 32].map((at) => view.getUint16(place + at, true));
      const path = new TextDecoder().decode(bytes.subarray(place + 46, place + 46 + named));
      place += 46 + named + extra + said;
      total += size;
      if (total > MAX_BYTES) throw tooLarge(file.name);
      if (path.endsWith("/")) continue;
      const data = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
      if (data + packed > bytes.length || ![0, 8].includes(method)) throw new RangeError("no data");
      files.set(path, await unpacked(bytes.slice(data, data + packed), size, method === 8));
    }
  } catch (error) {
    if (error instanceof EdgeInferError) throw error;
    throw wrong(`${file.name} is a damaged zip file`);
  }
  const [top] = [...files.keys()].filter((path) => path.endsWith(MANIFEST)).sort((a, b) => a.length - b.length);
  const prefix = top?.slice(0, -MANIFEST.length) ?? "";
  return new Map([...files].filter(([path]) => path.startsWith(prefix)).map(([path, data]) => [path.slice(prefix.length), data]));
}

/** @param {Uint8Array<ArrayBuffer>} bytes @param {number} size @param {boolean} isPacked @throws {RangeError} It is not so long. */
async function unpacked(bytes, size, isPacked) {
  if (!isPacked && bytes.length === size) return bytes;
  const whole = new Uint8Array(size);
  let length = 0;
  // By a reader: WebKit's streams are not iterable.
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    if (length + value.length > size) {
      await reader.cancel();
      throw new RangeError("longer than it says");
    }
    whole.set(value, length);
    length += value.length;
  }
  if (length !== size) throw new RangeError("shorter than it says");
  return whole;
}

/**
 * Compare the files with those that the manifest lists.
 *
 * @param {Files} files Those that it does not list are left out: nothing vouches for them.
 * @param {string} name What was dropped.
 * @returns {Promise<{manifest: any, labels: string[]}>}
 * @throws {EdgeInferError} `bundle_error`: there is no manifest, or a file is missing; `manifest_error`: the manifest does not fit;
 *   `integrity_error`: a file is another than it was.
 */
export async function checkedManifest(files, name) {
  const bytes = files.get(MANIFEST);
  if (!bytes) throw wrong(`${name} has no manifest.json: it is no bundle`, "make one: `edge-infer convert model.onnx -o model.bundle`");
  /** @type {any} */
  const manifest = parseManifest(bytes);
  const listed = new Set([MANIFEST]);
  for (const { path, sha256: hash } of manifest.files) {
    const file = files.get(path);
    if (!file) throw wrong(`${name} lacks \`${path}\``);
    if ((await sha256(file)) !== hash) throw new EdgeInferError(`\`${path}\` of ${name} is not the file that the manifest names: its hash is another`, "integrity_error", { hint: "copy the bundle again, or convert it anew" });
    listed.add(path);
  }
  for (const path of files.keys()) if (!listed.has(path)) files.delete(path);
  return { manifest, labels: labelsOf(manifest.labels, files) };
}

/** @param {unknown} path @param {Files} files @returns {string[]} */
function labelsOf(path, files) {
  if (path === undefined) return [];
  try {
    const labels = JSON.parse(new TextDecoder().decode(files.get(String(path))));
    if (Array.isArray(labels) && labels.every((label) => typeof label === "string")) return labels;
  } catch {
    // Said below, as of any other content.
  }
  throw wrong(`\`${path}\` is not a JSON list of texts that the bundle lists`, "convert the model again");
}
