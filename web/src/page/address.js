/** The addresses that the public functions take: of bundles, of files, and of models of signed stores. */

/** What an address of STORE/MODEL begins with. */
export const STORE = "edge+";

/** @param {URL | string} url @returns {string} In Node a path is one of this machine. */
export function addressOf(url) {
  return new URL(url, globalThis.location?.href ?? `file://${globalThis.process?.cwd()}/`).href;
}
