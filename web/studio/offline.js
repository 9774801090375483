/** "Offline now": the page's service worker cuts the network, and the page goes on with what was kept. */

import { EdgeInferError, keepOffline } from "../src/index.js";
import { HAS_SERVER } from "./catalog.js";
import { h, say } from "./parts.js";

/** How long the service worker may take to say that it has heard. */
const ANSWER_MS = 5000;

/**
 * @param {URL[]} files What the page is to have besides what it has loaded: the samples that have not been tried.
 * @returns {HTMLElement} A button that cuts the network and allows it again, and what has become of it.
 */
export function offlineSwitch(files) {
  const text = h("span.small.quiet", { role: "status" });
  const button = /** @type {HTMLButtonElement} */ (h("button", { hidden: !navigator.serviceWorker, onclick: () => turn() }, "Offline now"));
  let isCut = false;

  const show = (/** @type {boolean} */ value, /** @type {string} */ said) => {
    isCut = value;
    button.textContent = isCut ? "Online again" : "Offline now";
    text.textContent = said;
  };

  async function turn() {
    button.disabled = true;
    try {
      if (isCut) {
        await cut(false);
        show(false, "The network is back.");
      } else {
        // An exported page has a copy of the worker beside it: a host of files lets a worker serve its own folder alone.
        const kept = await keepOffline(HAS_SERVER ? { files } : { files, script: "service-worker.js" });
        if (!kept.isKept) throw new EdgeInferError(kept.why, "unsupported");
        await cut(true);
        show(true, "The network is cut: what you try now runs from what this page has kept.");
      }
    } catch (error) {
      text.textContent = error instanceof Error ? error.message.replaceAll("`", "") : String(error);
    }
    button.disabled = false;
    say(text.textContent ?? "");
  }

  if (navigator.serviceWorker?.controller) cut().then((value) => value && show(true, "The network is still cut for this page."), () => {});
  return h("span.offline", button, text);
}

/**
 * @param {boolean} [wanted] Whether the network is to be cut; as it is unless given.
 * @returns {Promise<boolean>} Whether it is cut.
 */
async function cut(wanted) {
  const worker = navigator.serviceWorker.controller ?? (await navigator.serviceWorker.ready).active;
  if (!worker) throw new EdgeInferError("The service worker is gone", "unsupported", { hint: "reload the page" });
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new EdgeInferError("The service worker does not answer; reload the page", "unsupported")), ANSWER_MS);
    port1.onmessage = ({ data }) => {
      clearTimeout(timer);
      if (data.error) reject(EdgeInferError.fromJSON(data.error));
      else resolve(data.value);
    };
  });
  worker.postMessage({ kind: "cut", wanted }, [port2]);
  return /** @type {Promise<boolean>} */ (answer.finally(() => port1.close()));
}
