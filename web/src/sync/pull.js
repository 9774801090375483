/**
 * Bring a page's storage to the newest version of a model that a store offers: the old one or the new one, whole. The
 * rules are those of `edge_infer.sync.client`; the files are kept under their sha256 beside the plain bundles.
 */

import { parseManifest } from "../bundle/manifest.js";
import { EdgeInferError } from "../errors.js";
import { goodBytes } from "../fetch/transfer.js";
import { isHalted } from "./advice.js";
import { unpack } from "./pack.js";
import { fetchFile } from "./read.js";
import { RecordSlots, filesOf } from "./record.js";
import { MANIFEST, bundleOf } from "./revision.js";
import { KeyRing, opened } from "./sealed.js";
import { newest } from "./trust.js";
import { openZstd } from "./zstd.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {import("./pack.js").File} File */
/** @typedef {import("./record.js").Installed} Installed */
/** @typedef {import("./record.js").Record} Record */
/** @typedef {import("./revision.js").Revision} Revision */
/** @typedef {"none" | "repair" | "local" | "delta" | "full" | "files"} Method What brought the files; `files`: one by one, from a plain bundle. */
/**
 * @typedef {object} Update What an update did.
 * @property {string} version
 * @property {boolean} changed Whether other weights run now than before.
 * @property {Method} method
 * @property {number} bytesMoved
 * @property {number} bytesFull
 * @property {string} note
 */
/**
 * @typedef {object} Pulled
 * @property {string} model
 * @property {string} version
 * @property {number} sequence
 * @property {number} stage The number of the roll-out's step that it was offered in; 0 for none.
 * @property {string} bundle Its bundle revision.
 * @property {string} device The random name of this page's storage.
 * @property {Method} method
 * @property {number} bytesMoved The bytes that were fetched for it.
 * @property {number} bytesFull The bytes of a full download.
 * @property {string} note Why a cheaper method, or the store itself, was given up; else empty.
 * @property {boolean} isNew Whether it is not the active version yet: its trial comes first.
 * @property {boolean} isOffline Whether the store could not be asked, and this is the version of the last time.
 * @property {[string, Bytes][]} files What a session needs, by path.
 */
/**
 * @typedef {object} PullOptions
 * @property {string} root The URL under which `vendor/` lies.
 * @property {string} [trust] The store's first root metadata, as text; what the store shows first unless given.
 * @property {string} [key] The text of the key file of versions that are encrypted.
 * @property {string} [files] The address of a plain bundle whose files may serve where no pack does.
 * @property {boolean} [mayBeOld] Whether the version of the last time will do where the store does not answer properly.
 * @property {import("../fetch/download.js").OnProgress} [onProgress]
 * @property {AbortSignal} [signal]
 */

const MAX_TRIALS = 2;
const MAX_REFUSED = 16;

/** A model of a store, as this page has it. One pull at a time, over all tabs; it ends with `settle`. */
export class StoreModel {
  /**
   * @param {string} address STORE/MODEL, an absolute URL.
   * @param {import("../cache/store.js").Store} store
   */
  constructor(address, store) {
    const { at, model } = split(address);
    this.at = at;
    this.model = model;
    /** What its files are listed under: other stores, and plain bundles, may have a model of this name. */
    this.label = at + model;
    this.store = store;
    this.release = () => {};
    /** @type {Promise<RecordSlots> | undefined} */
    this.slots = undefined;
    /** @type {Pulled | undefined} */
    this.pulled = undefined;
  }

  /**
   * Fetch and check the newest version. Where it is a new one, it stays inactive until `settle`.
   *
   * @param {PullOptions} options
   * @returns {Promise<Pulled>}
   */
  async pull(options) {
    const settled = new Promise((resolve) => (this.release = () => resolve(undefined)));
    return new Promise((answer, reject) => {
      const work = async () => {
        try {
          this.pulled = await this.run(options);
          answer(this.pulled);
        } catch (error) {
          reject(error);
          return;
        }
        if (this.pulled.isNew) await settled;
      };
      const { locks } = globalThis.navigator ?? {};
      const name = `edge-infer/sync/${this.at}${this.model}`;
      const held = locks ? locks.request(name, options.signal ? { signal: options.signal } : {}, work) : work();
      held.catch(reject);
    });
  }

  /**
   * Count a trial, before it begins: a version that the tab dies of twice is not taken.
   *
   * @param {string} bundle The version's bundle revision.
   */
  async begin(bundle) {
    const slots = await this.record();
    const record = await slots.read();
    await slots.write({ ...record, trial: bundle, trials: record.trial === bundle ? record.trials + 1 : 1 });
  }

  /**
   * End a pull: the new version becomes the active one, or is refused for good.
   *
   * @param {"active" | "refused" | "undecided"} result Undecided: the fault was this page's, not the version's.
   */
  async settle(result) {
    const { pulled } = this;
    this.pulled = undefined;
    try {
      if (!pulled?.isNew) return;
      const slots = await this.record();
      const record = { ...(await slots.read()), trial: "", trials: 0 };
      const wanted = this.wanted;
      if (result === "refused") record.refused = [...record.refused, pulled.bundle].slice(-MAX_REFUSED);
      if (result === "active" && wanted) Object.assign(record, { active: wanted, previous: record.active });
      await slots.write(record);
      if (result === "active") await this.collect(record);
    } finally {
      this.release();
    }
  }

  /** The keys of the pull that is under way. */
  ring = new KeyRing([]);

  /** @type {Installed | undefined} What the pull that is under way brings. */
  wanted;

  /**
   * @param {PullOptions} options
   * @returns {Promise<Pulled>}
   */
  async run(options) {
    this.ring = await KeyRing.of(options.key);
    try {
      return await this.bringNewest(options);
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!options.mayBeOld || !(error instanceof EdgeInferError)) throw error;
      const old = await this.active();
      if (!old) throw error;
      const isOffline = error.code === "fetch_error" && !("status" in error.details);
      return { ...old, note: error.message, isOffline };
    }
  }

  /**
   * @param {PullOptions} options
   * @returns {Promise<Pulled>}
   */
  async bringNewest(options) {
    const slots = await this.record();
    let record = await slots.read();
    const read = (/** @type {string} */ path, /** @type {number} */ limit) => fetchFile(new URL(path, this.at), limit, options.signal);
    const first = record.root || options.trust || (await firstRoot(read));
    // A version that was seen and not taken does not count: a roll-out that ends offers the one before it again.
    const least = { ...record.floor, sequence: record.active?.sequence ?? 0 };
    const { revision, root, floor, stage } = await newest(read, this.model, first, least, { device: record.device, kept: kept(slots) });
    record = { ...(await slots.read()), root, floor };
    await slots.write(record);
    if (record.trial && record.trials >= MAX_TRIALS) {
      record = { ...record, refused: [...record.refused, record.trial].slice(-MAX_REFUSED), trial: "", trials: 0 };
      await slots.write(record);
    }
    const wanted = { version: revision.version, sequence: revision.sequence, files: revision.files, key: revision.key };
    const bundle = bundleOf(wanted);
    if (record.refused.includes(bundle)) {
      throw new EdgeInferError(`Version ${wanted.version} of \`${this.model}\` failed its trial here before and is not taken`, "trial_failed", {
        hint: "publish a better one; in this browser, clearModels() forgets that it failed",
        details: { version: wanted.version },
      });
    }
    const isRunning = record.active !== null && bundleOf(record.active) === bundle;
    if (stage && !isRunning && (await isHalted(this.at, this.model, wanted.sequence, stage, options.signal))) {
      throw new EdgeInferError(`The roll-out of version ${wanted.version} of \`${this.model}\` is halted: it failed on other devices`, "not_released", {
        hint: record.active ? "the old version is active as before" : "nothing is installed",
        details: { version: wanted.version },
      });
    }
    if (revision.key) this.ring.get(revision.key, `Version ${wanted.version} of \`${this.model}\``); // before anything is fetched
    const known = this.store.notices.length;
    const { files, method, moved, note: given } = await this.bring(revision, record, options);
    const isActive = record.active !== null && bundleOf(record.active) === bundle;
    if (isActive && record.active?.sequence !== wanted.sequence) await slots.write({ ...record, active: wanted });
    this.wanted = wanted;
    if (slots.held) this.store.notice("Which version is active could not be kept: the browser has no room");
    return {
      model: this.model,
      version: revision.version,
      sequence: revision.sequence,
      stage,
      bundle,
      device: record.device,
      method: isActive ? (method === "local" ? "none" : "repair") : method,
      bytesMoved: moved,
      bytesFull: revision.pack.size,
      note: [given, ...this.store.notices.slice(known)].filter(Boolean).join("; "),
      isNew: !isActive,
      isOffline: false,
      files: await this.readable(files, revision.key),
    };
  }

  record() {
    this.slots ??= RecordSlots.of(this.store.place, this.at, this.model);
    return this.slots;
  }

  /** @returns {Promise<Pulled | undefined>} The active version, where all of it is here. */
  async active() {
    const { active, device } = await (await this.record()).read();
    const files = active && (await this.kept(active.files));
    if (!active || files?.size !== active.files.length) return undefined;
    const common = { model: this.model, version: active.version, sequence: active.sequence, stage: 0, bundle: bundleOf(active), device };
    return { ...common, method: "none", bytesMoved: 0, bytesFull: 0, note: "", isNew: false, isOffline: false, files: await this.readable(files, active.key) };
  }

  /**
   * @param {Revision} revision
   * @param {Record} record
   * @param {PullOptions} options
   * @returns {Promise<{files: Map<string, Bytes>, method: Method, moved: number, note: string}>}
   */
  async bring(revision, record, options) {
    const here = await this.kept(revision.files);
    if (here.size === revision.files.length) return { files: here, method: "local", moved: 0, note: "" };
    let [note, moved] = ["", 0];
    const decoder = await openZstd(options.root);
    // Without room the new version runs from memory: the old one stays whole for the next visit.
    this.store.spared = new Set(record.active?.files.map(({ sha256 }) => sha256));
    const key = revision.key ? this.ring.get(revision.key, revision.version) : undefined;
    for (const { pack, files: old, key: oldKey } of [...(await this.usable(revision, record)), { pack: revision.pack, files: [], key: "" }]) {
      try {
        const bases = new Map(old.map((file) => [file.sha256, file]));
        const url = new URL(`packs/${pack.sha256.slice(0, 2)}/${pack.sha256}`, this.at);
        const entry = { path: `${this.model}-${revision.version}.pack`, size: pack.size, sha256: pack.sha256, parts: pack.parts };
        const { bytes, isKept } = await this.store.file(url, entry, this.label, options);
        moved += isKept ? 0 : pack.size;
        const clear = key ? await opened(bytes, this.ring, entry.path) : bytes;
        const files = await unpack(clear, revision.files, (digest) => this.base(bases.get(digest), oldKey), decoder, key);
        await this.keep(revision.files, files);
        await this.store.place.remove(pack.sha256);
        return { files, method: pack.base ? "delta" : "full", moved, note };
      } catch (error) {
        options.signal?.throwIfAborted();
        const isOther = !(error instanceof EdgeInferError) || !["delta_error", "fetch_error", "integrity_error"].includes(error.code);
        if (isOther || (!pack.base && (!options.files || key))) throw error; // a plain bundle has other files
        await this.store.place.remove(pack.sha256);
        note = `${pack.base ? "delta" : "full pack"} given up: ${error.message}`;
      }
    }
    const files = await this.plain(revision, options);
    for (const bytes of files.values()) moved += bytes.length;
    return { files, method: "files", moved, note };
  }

  /**
   * Fetch the files of a revision from a plain bundle; the signed sha256 of each says whether it is the right one.
   *
   * @param {Revision} revision
   * @param {PullOptions} options
   */
  async plain(revision, options) {
    const files = new Map();
    const folder = new URL(`${options.files?.replace(/\/+$/, "")}/`);
    for (const file of revision.files) {
      const url = new URL(file.path.split("/").map(encodeURIComponent).join("/"), folder);
      files.set(file.path, (await this.store.file(url, file, this.label, options)).bytes);
    }
    return files;
  }

  /**
   * @param {Revision} revision
   * @param {Record} record
   * @returns {Promise<{pack: import("./revision.js").Pack, files: File[], key?: string}[]>} The deltas whose base lies here whole, with
   *   the files of it, the smallest first.
   */
  async usable(revision, { active, previous }) {
    const found = [];
    for (const one of [active, previous]) {
      const delta = one && revision.deltas.find(({ base }) => base === bundleOf(one));
      if (!one || !delta || delta.size >= revision.pack.size || (one.key && !this.ring.has(one.key))) continue;
      if ((await this.kept(one.files)).size === one.files.length) found.push({ pack: delta, files: one.files, key: one.key });
    }
    return found.toSorted((one, other) => one.pack.size - other.pack.size);
  }

  /** @param {File | undefined} file @param {string} [key] The name of its key. @returns {Promise<Bytes>} In clear. */
  async base(file, key) {
    const bytes = file && (await this.store.place.read(file.sha256));
    if (!file || !bytes) throw new EdgeInferError("The pack needs a base file that is not here", "delta_error");
    return key ? opened(bytes, this.ring, file.path) : bytes;
  }

  /**
   * @param {Map<string, Bytes>} files
   * @param {string} [key] The name of their key; empty where they are in clear.
   * @returns {Promise<[string, Bytes][]>} All of them, in clear: which variant a session takes is its own choice.
   * @throws {EdgeInferError} `manifest_error`: this page cannot read the manifest, such as one of a later edge-infer.
   */
  async readable(files, key) {
    if (key) for (const [path, bytes] of files) files.set(path, await opened(bytes, this.ring, path));
    const manifest = files.get(MANIFEST);
    if (manifest) parseManifest(manifest); // an index has none
    return [...files];
  }

  /**
   * @param {readonly File[]} files
   * @returns {Promise<Map<string, Bytes>>} Those that are here and whole, by path.
   */
  async kept(files) {
    const found = new Map();
    for (const file of files) {
      const bytes = await this.store.place.read(file.sha256);
      if (bytes && (await goodBytes(bytes, file)) === file.size && bytes.length === file.size) found.set(file.path, bytes);
    }
    return found;
  }

  /**
   * @param {readonly File[]} listed
   * @param {Map<string, Bytes>} files
   */
  async keep(listed, files) {
    for (const file of listed) {
      const bytes = files.get(file.path);
      if (!bytes || !(await this.store.makeRoom(file, file.size))) continue;
      if (await this.store.write(file, 0, bytes)) await this.store.note(file, this.label);
    }
  }

  /**
   * Remove the files that neither the active version has, nor the one before, nor a version of another store.
   *
   * @param {Record} record
   */
  async collect(record) {
    const { place } = this.store;
    const own = await this.record();
    const wanted = new Set([...filesOf(record), ...(await own.filesOfOthers())]);
    for (const [name, { model }] of Object.entries(await this.store.index())) {
      if (model === this.label && !wanted.has(name)) await place.remove(name).catch(() => {});
    }
  }
}

/**
 * @param {string} address
 * @returns {{at: string, model: string}} The store's URL, with a `/` at its end, and the model's name.
 */
export function split(address) {
  const url = new URL(address);
  const pieces = url.pathname.replace(/\/+$/, "").split("/");
  const model = decodeURIComponent(pieces.pop() ?? "");
  if (!model || pieces.length < 1) {
    throw new EdgeInferError(`\`${address}\` names no model of a store`, "input_error", { hint: "edge+https://HOST/STORE/MODEL" });
  }
  return { at: new URL(`${pieces.join("/")}/`, url).href, model };
}

/**
 * Keep verified metadata in the record of the active version, each role as soon as it is verified.
 *
 * @param {RecordSlots} slots
 * @returns {import("./metadata.js").Kept}
 */
function kept(slots) {
  return {
    async read(role) {
      const { root, metadata } = await slots.read();
      return role === "root" ? root || undefined : Object.hasOwn(metadata, role) ? metadata[role] : undefined;
    },
    async write(role, text) {
      const record = await slots.read();
      await slots.write(role === "root" ? { ...record, root: text } : { ...record, metadata: { ...record.metadata, [role]: text } });
    },
  };
}

/** @param {import("./trust.js").Read} read */
async function firstRoot(read) {
  const bytes = await read("tuf/1.root.json", 512_000);
  if (bytes) return new TextDecoder().decode(bytes);
  throw new EdgeInferError("There is no store: it has no `tuf/1.root.json`", "fetch_error", {
    hint: "edge-infer store keys init STORE --keys DIR",
    details: { status: 404 },
  });
}
