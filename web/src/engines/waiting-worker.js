/** The other end of `waiting-session.js`: sessions on the GPU, and a shelf of shared memory for their results. */

import { InferError } from "../errors.js";
import { BytesSession, describeError } from "./bytes-session.js";
import { LONGER, THERE } from "./waiting-session.js";

/** @typedef {import("./bytes-session.js").Crossed} Crossed */
/** @typedef {import("./waiting-session.js").Shelf} Shelf */

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
    put(shelf, kept);
    return;
  }
  try {
    const value = await handle(request);
    if (shelf) put(shelf, packed(/** @type {Crossed} */ (value)));
    else self.postMessage({ id, value });
  } catch (error) {
    const document = describeError(error);
    if (shelf) put(shelf, packed({ described: "", buffers: [] }, document));
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
  if (!found) throw new InferError("The session is closed", "input_error", { hint: "load the model again" });
  if (kind === "run") return found.run(described, buffers);
  sessions.delete(session);
  await found.close();
  return null;
}

/**
 * @param {Crossed} crossed
 * @param {import("../errors.js").ErrorDocument} [error]
 * @returns {Uint8Array<ArrayBuffer>} The length of a text, the text, and all bytes.
 */
function packed({ described, buffers }, error) {
  const sizes = buffers.map((buffer) => buffer.byteLength);
  const text = new TextEncoder().encode(JSON.stringify({ described, sizes, error }));
  const bytes = new Uint8Array(4 + text.length + sizes.reduce((sum, size) => sum + size, 0));
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  let offset = 4 + text.length;
  for (const buffer of buffers) {
    bytes.set(buffer, offset);
    offset += buffer.byteLength;
  }
  return bytes;
}

/**
 * @param {Shelf} shelf
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
function put({ state, data }, bytes) {
  const fits = bytes.length <= data.length;
  kept = fits ? new Uint8Array() : bytes;
  if (fits) data.set(bytes);
  else state[1] = bytes.length;
  Atomics.store(state, 0, fits ? THERE : LONGER);
  Atomics.notify(state, 0);
}
