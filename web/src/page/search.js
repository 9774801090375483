/** Open an index: one that was fetched, or that of the reader's own documents, with the bundle that makes vectors of texts. */

import { rootOf } from "../fetch/root.js";
import { STORE, addressOf } from "./address.js";
import { pipeline } from "./pipeline.js";

/** @typedef {import("./load.js").SessionOptions} SessionOptions */
/** @typedef {Omit<import("../vectors/search-index.js").IndexOptions, "embed"> & {model?: URL | string | import("../vectors/search-index.js").Embed, modelOptions?: SessionOptions, trust?: string, root?: URL | string}} OpenIndexOptions */
/** @typedef {SessionOptions & {model: URL | string, renew?: boolean, onRenewed?: (done: number, total: number) => void}} OwnIndexOptions */

/**
 * Open an index that was fetched; `index.js` says all of it.
 *
 * @param {URL | string} url
 * @param {OpenIndexOptions} [options]
 * @returns {Promise<import("../vectors/search-index.js").SearchIndex>}
 */
export async function openIndex(url, { model, modelOptions, trust, root, ...options } = {}) {
  const { SearchIndex } = await import("../vectors/search-index.js");
  const open = async () => {
    if (!String(url).startsWith(STORE)) return SearchIndex.open(url, options);
    const { LiveModel } = await import("./live.js");
    const live = new LiveModel(addressOf(String(url).slice(STORE.length)), rootOf(root), { trust });
    const { onProgress, signal } = options;
    try {
      const { taken, update } = await live.take({ mayBeOld: true, onProgress, signal }, ({ files }) => SearchIndex.ofFiles(files));
      return Object.assign(/** @type {import("../vectors/search-index.js").SearchIndex} */ (taken), { update });
    } finally {
      live.close();
    }
  };
  if (model === undefined || typeof model === "function") return Object.assign(await open(), { embed: model });
  const [index, embed] = await Promise.all([open(), pipeline(model, modelOptions)]);
  try {
    await index.checkRevision(await embed.session.read("manifest.json"));
  } catch (error) {
    await embed.session.dispose();
    throw error;
  }
  index.embed = embed;
  return index;
}

/**
 * Open an index of the reader's own documents; `index.js` says all of it.
 *
 * @param {string} name
 * @param {OwnIndexOptions} options
 * @returns {Promise<import("../vectors/own-index.js").OwnIndex>}
 */
export async function ownIndex(name, { model, renew, onRenewed, ...options }) {
  const [{ OwnIndex }, { openFolder }, { embedderOf }] = await Promise.all([
    import("../vectors/own-index.js"),
    import("../vectors/own-folder.js"),
    import("../vectors/embedder.js"),
  ]);
  const folder = await openFolder(name);
  const embedder = await embedderOf(addressOf(model), (/** @type {string} */ url, /** @type {any} */ more) => pipeline("feature-extraction", url, { ...more, ...options }), options.apiKey);
  try {
    return await OwnIndex.open(folder, embedder, { renew, onRenewed });
  } catch (error) {
    await embedder.close?.();
    throw error;
  }
}
