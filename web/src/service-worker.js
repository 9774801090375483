/**
 * Keep a page's own files in a service worker, and answer with them while the server is out of reach. `keepOffline`
 * registers it and lists the files; a site that has one already adds this with `importScripts`. It has no imports for that reason.
 *
 * What the page has loaded is kept, and all that these modules may import later, from the package and from the page's own.
 *
 * The network comes first: where it answers, nothing that was kept is used. A file's bytes lie under their sha256, and an
 * index, written last, names the files of each page: all of them are kept, or those of before. Nothing tells which page a
 * worker's request is of, so a file that two pages have is the one that was kept last: keep both again after a deployment.
 */

/** @typedef {{sha256: string, headers: Record<string, string>}} KeptFile */
/** @typedef {Record<string, Record<string, KeptFile>>} Index The files of each page, by their addresses. */
/** @typedef {{kind: "keep", page: string, addresses: string[], later: string[], versions: string}} KeepRequest */
/** Cut the network, allow it again, or, where `wanted` is left out, tell which it is. @typedef {{kind: "cut", wanted?: boolean}} CutRequest */
/** @typedef {{files: number, bytes: number, checked: number}} KeptCount */
/** @typedef {{waitUntil: (promise: Promise<unknown>) => void}} Extendable */

const CACHE = "edge-infer-offline";
const PLACE = `${globalThis.location.origin}/.edge-infer/offline/`;
const INDEX = `${PLACE}index.json`;
/** Is there while a page has cut the network; a worker that was stopped meanwhile finds it again. */
const CUT = `${PLACE}cut`;
// They describe the bytes on the wire, not those that are kept.
const OF_THE_WIRE = ["content-encoding", "content-length", "transfer-encoding", "date"];

// What a module names: what it imports, at once or later; files beside it, such as workers and kernels; and modules under `vendor/`.
const MODULE = /\.m?js$/;
const IMPORTED = /\b(?:from|import)\s*\(?\s*["'`](\.{1,2}\/[^"'`$]+)["'`]/g;
const LOCATED = /\bnew URL\(\s*["'`](\.{1,2}\/[^"'`$]*[^"'`$/])["'`]\s*,\s*import\.meta\.url\s*\)/g;
const VENDORED = /["'`]vendor\/([\w./-]+\.m?js)["'`]/g;

const worker = /** @type {any} */ (globalThis);
// Keeping changes the index: one after the other.
let last = Promise.resolve();
/** Whether nothing is asked of the network. @type {Promise<boolean> | undefined} */
let isCut;

worker.addEventListener("install", () => worker.skipWaiting());
// Not waited for: Firefox claims a page only after its engine's threads, which answer nothing, and that takes it a minute.
worker.addEventListener("activate", () => void worker.clients.claim().catch(() => {}));

worker.addEventListener("fetch", (/** @type {{request: Request, respondWith: (answer: Promise<Response>) => void}} */ event) => {
  const { request } = event;
  if (request.method !== "GET" || request.headers.has("range") || request.cache === "only-if-cached") return;
  event.respondWith(answer(request));
});

worker.addEventListener("message", (/** @type {Extendable & MessageEvent<KeepRequest | CutRequest>} */ event) => {
  const [port] = event.ports;
  if (event.data?.kind === "cut" && port) {
    const { wanted } = event.data;
    isCut = setCut(wanted);
    event.waitUntil(isCut.then((value) => port.postMessage({ value }), (error) => port.postMessage({ error: describe("storage_error", String(error), "free some space") })));
    return;
  }
  if (event.data?.kind !== "keep" || !port) return;
  port.postMessage({ isHeard: true });
  const request = event.data;
  last = last.then(() => keep(request)).then(
    (value) => port.postMessage({ value }),
    (error) => port.postMessage({ error: error.document ?? describe("fetch_error", String(error), "load the page again") }),
  );
  event.waitUntil(last);
});

/**
 * @param {Request} request
 * @returns {Promise<Response>} What the network says, else what was kept.
 */
async function answer(request) {
  if (await (isCut ??= setCut())) return (await kept(request)) ?? Response.error();
  let response;
  try {
    response = await fetch(request);
  } catch (error) {
    const old = await kept(request);
    if (old) return old;
    throw error;
  }
  // A proxy says 502 where the server is gone.
  return response.status >= 500 ? ((await kept(request)) ?? response) : response;
}

/**
 * @param {boolean} [wanted] Whether the network is to be cut; as it is unless given.
 * @returns {Promise<boolean>} Whether it is cut.
 */
async function setCut(wanted) {
  const cache = await caches.open(CACHE);
  if (wanted === true) await cache.put(CUT, new Response("cut"));
  if (wanted === false) await cache.delete(CUT);
  return wanted ?? (await cache.match(CUT)) !== undefined;
}

/**
 * @param {Request} request
 * @returns {Promise<Response | undefined>}
 */
async function kept(request) {
  const cache = await caches.open(CACHE);
  const files = filesOf(await readIndex(cache));
  const address = request.url.split("#")[0];
  // A page is the same file whatever its query says.
  const file = files[address] ?? (request.mode === "navigate" ? files[address.split("?")[0]] : undefined);
  const body = file && (await cache.match(PLACE + file.sha256));
  return body && new Response(body.body, { headers: file.headers });
}

/**
 * Keep the files of a page; all of them, or what was kept before stays.
 *
 * @param {KeepRequest} request
 * @returns {Promise<KeptCount>}
 */
async function keep({ page, addresses, later = [], versions }) {
  const cache = await caches.open(CACHE);
  const index = await readIndex(cache);
  const known = filesOf(index);
  const hashes = await pinned(versions);
  const count = { files: 0, bytes: 0, checked: 0 };
  // Without its server the kept page is not changed.
  const isOnline = await fetch(page, { method: "HEAD", cache: "no-store" }).then(({ status }) => status < 500, () => false);
  /** @type {Record<string, KeptFile>} */
  const files = {};
  const origins = [page, versions].map((url) => new URL(url).origin);
  const seen = new Set([...addresses, ...later]);
  /** @param {string} address @param {boolean} isLoaded Whether the page has loaded it, and did not only name it. @returns {Promise<void>} */
  const add = async (address, isLoaded) => {
    const got = await (isOnline ? fetched : found)(cache, address, known[address]).catch((error) => {
      if (isLoaded || (isOnline && !error.status)) throw error;
    });
    if (!got) return; // a site may leave out what it does not use
    const { file, body } = got;
    const expected = hashes[address.split("?")[0]];
    if (expected !== undefined && expected !== file.sha256) {
      const said = `${address} has sha256 ${file.sha256}, expected ${expected}`;
      throw failure("integrity_error", said, "the server's files are not of one version: copy or install them again");
    }
    files[address] = file;
    count.files += 1;
    count.bytes += body.size;
    count.checked += expected === undefined ? 0 : 1;
    const { origin, pathname } = new URL(address);
    if (!origins.includes(origin) || !MODULE.test(pathname) || pathname.includes("/vendor/")) return;
    const named = namedIn(await body.text(), address, versions).filter((one) => !seen.has(one) && seen.add(one));
    await Promise.all(named.map((one) => add(one, false)));
  };
  await Promise.all([...addresses.map((address) => add(address, true)), ...later.map((address) => add(address, false))]);
  index[page] = files;
  await cache.put(INDEX, new Response(JSON.stringify(index)));
  const needed = new Set([INDEX, CUT, ...Object.values(filesOf(index)).map(({ sha256 }) => PLACE + sha256)]);
  for (const { url } of await cache.keys()) if (!needed.has(url)) await cache.delete(url);
  return count;
}

/**
 * @param {Cache} cache
 * @param {string} address
 * @param {KeptFile | undefined} file
 * @returns {Promise<{file: KeptFile, body: Blob}>}
 */
async function found(cache, address, file) {
  const body = file && (await cache.match(PLACE + file.sha256));
  if (!body) throw failure("fetch_error", `${address} cannot be reached, so it cannot be kept`, "is the server running?");
  return { file, body: await body.blob() };
}

/**
 * Find what a module imports, now or later, and the workers and kernels that it names: a page without its server has to have
 * what it did not use before.
 *
 * @param {string} text The module's.
 * @param {string} address
 * @param {string} versions The address of `vendor/versions.json`, beside which the package's other modules lie.
 * @returns {string[]} The addresses.
 */
function namedIn(text, address, versions) {
  const relative = [...text.matchAll(IMPORTED), ...text.matchAll(LOCATED)].map(([, one]) => new URL(one, address).href);
  return [...relative, ...[...text.matchAll(VENDORED)].map(([, one]) => new URL(one, versions).href)];
}

/**
 * Fetch a file, unless the one that is kept is still that of the server.
 *
 * @param {Cache} cache
 * @param {string} address
 * @param {KeptFile | undefined} old
 * @returns {Promise<{file: KeptFile, body: Blob}>}
 */
async function fetched(cache, address, old) {
  const body = old && (await cache.match(PLACE + old.sha256));
  /** @type {Record<string, string>} */
  const condition = body && old.headers.etag ? { "If-None-Match": old.headers.etag } : {};
  let response;
  try {
    response = await fetch(address, { headers: condition, credentials: "same-origin" });
  } catch {
    throw failure("fetch_error", `${address} cannot be reached, so it cannot be kept`, "is the server running?");
  }
  if (response.status === 304 && old && body) return { file: old, body: await body.blob() };
  if (response.status !== 200) {
    const said = `${address} answers with status ${response.status}, so it cannot be kept`;
    throw Object.assign(failure("fetch_error", said, "load the page again"), { status: response.status });
  }
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const headers = Object.fromEntries([...response.headers].filter(([name]) => !OF_THE_WIRE.includes(name)));
  try {
    await cache.put(PLACE + sha256, new Response(bytes));
  } catch (error) {
    const hint = "free some space, or remove models with clearModels()";
    throw failure("storage_error", `The browser has no room for ${address}, ${bytes.byteLength} bytes: ${error}`, hint);
  }
  return { file: { sha256, headers }, body: new Blob([bytes]) };
}

/**
 * @param {string} versions The address of `vendor/versions.json`.
 * @returns {Promise<Record<string, string>>} The sha256 that the build gave each engine file, by its address.
 */
async function pinned(versions) {
  const response = await fetch(versions).catch(() => undefined);
  if (!response?.ok) return {}; // a site that left it out
  /** @type {{files: Record<string, {sha256: string}>}} */
  const { files } = await response.json();
  return Object.fromEntries(Object.entries(files).map(([path, { sha256 }]) => [new URL(path, versions).href, sha256]));
}

/**
 * @param {Cache} cache
 * @returns {Promise<Index>}
 */
async function readIndex(cache) {
  return (await (await cache.match(INDEX))?.json()) ?? {};
}

/** @param {Index} index @returns {Record<string, KeptFile>} */
function filesOf(index) {
  return Object.assign({}, ...Object.values(index));
}

/** @param {string} code @param {string} error @param {string} hint */
function describe(code, error, hint) {
  return { error, code, hint, details: {} };
}

/** @param {string} code @param {string} error @param {string} hint */
function failure(code, error, hint) {
  return Object.assign(new Error(error), { document: describe(code, error, hint) });
}
