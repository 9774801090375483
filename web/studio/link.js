/** The address of what is on the screen: the way to run the model and, where it is short, the input. */

import { wayToQuery } from "./ways.js";

/** @typedef {import("./widgets/registry.js").Link} Link */
/** @typedef {HTMLTextAreaElement | HTMLInputElement | HTMLSelectElement} Field */

/** The most characters that an input takes in an address, where a letter may take nine: QR codes and chats cut longer ones. */
const MAX_INPUT = 1500;
/** How long an input rests before it is written: browsers refuse many changes of an address. */
const REST_MS = 400;

/**
 * Write the input and the way into the address as they change.
 *
 * @param {import("./state.js").State} state
 * @param {Link | undefined} link
 */
export function keepAddress(state, link) {
  if (state.model.files) return; // what was dropped has no address
  const path = `#/models/${encodeURIComponent(state.model.name)}`;
  let timer = 0;
  let written = location.hash;
  const write = () => {
    const query = new URLSearchParams(state.isChosen ? wayToQuery(state.way) : "");
    const given = new URLSearchParams((link?.get() ?? []).map((text) => ["in", text]));
    if (String(given).length <= MAX_INPUT) given.forEach((text) => query.append("in", text));
    const address = query.size ? `${path}?${query}` : path;
    if (address !== written && (query.size || written.includes("?"))) history.replaceState(null, "", (written = address));
  };
  state.on({
    ready: write,
    answered: () => {
      clearTimeout(timer);
      timer = window.setTimeout(write, REST_MS);
    },
    closed: () => clearTimeout(timer),
  });
}

/**
 * Put the input of an address in place.
 *
 * @param {URLSearchParams} query
 * @param {Link | undefined} link
 */
export function takeInput(query, link) {
  const given = query.getAll("in");
  if (given.length && given.join("").length <= MAX_INPUT) link?.set(given); // a longer one is of no link that was made here
}

/** @param {Field[]} fields @returns {Link} Their values, where one was changed. */
export function linkOf(fields) {
  const first = fields.map(({ value }) => value);
  return {
    get: () => (fields.every(({ value }, i) => value === first[i]) ? [] : fields.map(({ value }) => value)),
    set: (values) => {
      // Those of another bundle, or of one that had other columns.
      if (values.length !== fields.length) return;
      fields.forEach((field, i) => {
        field.value = values[i];
        if (field.value !== values[i]) field.value = first[i]; // no such choice, or no number
      });
    },
  };
}
