/** Which files the browser lists among the resources of this page or worker: it does so some time after their last byte. */

const LIMIT_MS = 500;
/** What was read to its end, and may not be listed yet. @type {Set<string>} */
const unlisted = new Set();

/**
 * Note that a file was read to its end.
 *
 * @param {URL} url
 * @param {Response} response One that a test or a page has made itself has no URL, and is never listed.
 */
export function ended(url, response) {
  if (response.url) unlisted.add(url.href);
}

/** Wait until what was read is listed. A full list takes no more files (a browser's first has 250 places), so it gives up after half a second. */
export async function listed() {
  const end = performance.now() + LIMIT_MS;
  const isMissing = (/** @type {string} */ url) => performance.getEntriesByName(url).length === 0;
  while ([...unlisted].some(isMissing) && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 1));
  unlisted.clear();
}
