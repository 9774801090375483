/** Run the GPU sessions of `waiting-session.js` in a worker of their own. */

import { EdgeInferError } from "../errors.js";
import { BytesSession, describeError } from "./bytes-session.js";
import { packed, put } from "./shelf.js";

/** @typedef {import("./shelf.js").Crossed} Crossed */

/** @type {Map<number, BytesSession>} */
const sessions = new Map();
let nextSession = 1;
/** The answer that did not fit on the shelf. */
let kept = new Uint8Array();
// One request after the other: a GPU's queue and its memory are shared.
let last = Promise.resolve();

self.onmessage = ({ data: request }) => {
  last = last.then(() => respond(request));
};

/** @param {any} request */
async function respond(request) {
  const { id, kind, shelf } = request;
  if (kind === "again") {
    kept = put(shelf, kept);
    return;
  }
  try {
    const value = await handle(request);
    if (shelf) kept = put(shelf, packed(/** @type {Crossed} */ (value)));
    else self.postMessage({ id, value });
  } catch (error) {
    const document = describeError(error);
    if (shelf) kept = put(shelf, packed({ described: "", buffers: [] }, document));
    else self.postMessage({ id, error: document });
  }
}

/** @param {any} request */
async function handle({ kind, root, model, variant, session, described, buffers }) {
  if (kind === "open") {
    const opened = await BytesSession.open(root, model, variant);
    sessions.set(nextSession, opened);
    return { session: nextSession++, specs: opened.describe() };
  }
  const found = sessions.get(session);
  if (!found) throw new EdgeInferError("The session is closed", "input_error", { hint: "load the model again" });
  if (kind === "run") return found.run(described, buffers);
  sessions.delete(session);
  await found.close();
  return null;
}
