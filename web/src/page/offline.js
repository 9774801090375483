/** Register the service worker, and tell it which files the page needs without its server. */

import { openWorkers, workerResources } from "./client.js";
import { EdgeInferError } from "../errors.js";

/**
 * @typedef {object} OfflineOptions
 * @property {(URL | string)[]} [files] More files to keep: what the page will need and has not loaded by a tag or an
 *   import, such as a Python file, or a bare `.onnx` file.
 * @property {URL | string} [script] The address of `service-worker.js`; that of this package unless given.
 */
/**
 * @typedef {object} Kept
 * @property {boolean} isKept Whether the page is there without its server from now on.
 * @property {number} files
 * @property {number} bytes What they have, unpacked.
 * @property {number} checked How many of them had the sha256 that the build gave them; the engine's files have one.
 * @property {string} why Why nothing is kept; empty where it is.
 */

// What a page asks for as it runs is data, such as models, which have a store of their own.
const DATA = ["fetch", "xmlhttprequest", "beacon"];
const FOLDERS = ["src/", "vendor/", "wheels/"];
/** The ends of the names of the archives of Python's rooms, those of the start and the others. */
const [FIRST_ROOMS, LATER_ROOMS] = ["-page.tar", "-page-later.tar"];
/** The address of our service worker. */
const OWN = new URL("../service-worker.js", import.meta.url).href;
// A service worker says at once that it has heard.
const ANSWER_MS = 10_000;

/**
 * @param {OfflineOptions} options
 * @param {string} root The URL under which `src/` and `vendor/` lie.
 * @returns {Promise<Kept>}
 */
export async function keepOffline({ files = [], script }, root) {
  const none = { isKept: false, files: 0, bytes: 0, checked: 0 };
  if (!navigator.serviceWorker) {
    const why = globalThis.isSecureContext ? "the browser has no service workers" : "the page is not in a secure context";
    return { ...none, why: `${why}: it needs its server at every visit` };
  }
  const page = location.href.split(/[?#]/)[0];
  const registration = await register(new URL(script ?? OWN, location.href), page, root);
  const addresses = new Set([page, ...files.map((file) => new URL(file, location.href).href)]);
  // Browsers ask for it where a page names no icon, and most sites have none.
  const isUnasked = !globalThis.document?.querySelector("link[rel~=icon]");
  const icon = isUnasked ? new URL("/favicon.ico", page).href : "";
  const folders = FOLDERS.map((folder) => new URL(folder, root).href);
  const isOwn = (/** @type {string} */ url) => /^https?:/.test(url) && !url.includes("/.edge-infer/");
  const loaded = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType("resource"));
  for (const { name, initiatorType } of loaded) {
    // What lies in the package's own folders is no data, such as the kernels of the search.
    const isOurs = folders.some((folder) => name.startsWith(folder));
    if (isOwn(name) && name !== icon && (isOurs || !DATA.includes(initiatorType))) addresses.add(name);
  }
  // A worker that ends meanwhile has told of what it fetched before.
  await Promise.all([...openWorkers].map((worker) => worker.request({ kind: "resources" }).catch(() => {})));
  /** What is kept where the server has it. @type {string[]} */
  const later = [];
  for (const url of workerResources) {
    if (!folders.some((folder) => url.startsWith(folder))) continue;
    addresses.add(url);
    // Python fetches its other rooms when it first imports one of them.
    if (url.endsWith(FIRST_ROOMS)) later.push(url.replace(FIRST_ROOMS, LATER_ROOMS));
  }
  const versions = new URL("vendor/versions.json", root).href;
  const count = await ask(await activated(registration), { kind: "keep", page, addresses: [...addresses], later, versions });
  return { isKept: true, ...count, why: "" };
}

/** Keep nothing of this origin's pages any more. A service worker of the site's own stays, with nothing of ours to give. */
export async function forgetOffline() {
  await globalThis.caches?.delete("edge-infer-offline");
  for (const registration of (await navigator.serviceWorker?.getRegistrations()) ?? []) {
    if (registration.active?.scriptURL === OWN) await registration.unregister();
  }
}

/**
 * @param {URL} script
 * @param {string} page
 * @param {string} root
 * @returns {Promise<ServiceWorkerRegistration>} Of the folder that has both the page and the engine's files.
 */
async function register(script, page, root) {
  const scope = commonFolder(page, root);
  try {
    return await navigator.serviceWorker.register(script, { scope });
  } catch (cause) {
    throw new EdgeInferError(`The service worker ${script} cannot serve ${scope}: ${cause}`, "unsupported", {
      hint: `copy src/service-worker.js to ${scope} and write keepOffline({ script: "${new URL("service-worker.js", scope).pathname}" })`,
      cause,
    });
  }
}

/**
 * @param {string} one
 * @param {string} other
 * @returns {string} The innermost folder that has both; the first one's root where they are of different origins.
 */
export function commonFolder(one, other) {
  const [first, second] = [new URL(one), new URL(other)];
  const pieces = first.pathname.split("/").slice(0, -1);
  const others = second.pathname.split("/").slice(0, -1);
  const same = first.origin === second.origin ? pieces.findIndex((piece, i) => piece !== others[i]) : 1;
  return `${first.origin}${pieces.slice(0, same < 0 ? undefined : same).join("/")}/`;
}

/**
 * @param {ServiceWorkerRegistration} registration
 * @returns {Promise<ServiceWorker>}
 */
async function activated(registration) {
  const worker = registration.installing ?? registration.waiting ?? registration.active;
  if (!worker) throw new EdgeInferError("The service worker is gone", "unsupported", { hint: "reload the page" });
  while (worker.state !== "activated") {
    if (worker.state === "redundant") throw new EdgeInferError("The service worker failed to start", "unsupported", { hint: "reload the page" });
    await new Promise((resolve) => worker.addEventListener("statechange", resolve, { once: true }));
  }
  return worker;
}

/**
 * @param {ServiceWorker} worker
 * @param {import("../service-worker.js").KeepRequest} request
 * @returns {Promise<import("../service-worker.js").KeptCount>}
 */
async function ask(worker, request) {
  const { port1, port2 } = new MessageChannel();
  const answered = new Promise((resolve, reject) => {
    const why = new EdgeInferError(`The service worker ${worker.scriptURL} does not answer`, "unsupported", {
      hint: 'add ours to it: importScripts("/src/service-worker.js")',
    });
    const timer = setTimeout(() => reject(why), ANSWER_MS);
    port1.onmessage = ({ data }) => {
      clearTimeout(timer);
      if (data.value) resolve(data.value);
      else if (data.error) reject(EdgeInferError.fromJSON(data.error));
    };
  });
  worker.postMessage(request, [port2]);
  return answered.finally(() => port1.close());
}
