/** Pull the versions of a store's model in a worker of their own, so that predictions do not wait. */

import { openClient } from "./own-thread.js";
import { EdgeInferError } from "../errors.js";
import { follow } from "./follow.js";

/** @typedef {import("../sync/pull.js").Pulled} Pulled */
/** @typedef {import("./follow.js").Update} Update */
/**
 * @typedef {object} StoreOptions
 * @property {string} [trust] The store's first `root.json`, as text; what the store shows first is trusted unless given.
 * @property {string} [key] The text of the key file of weights that are encrypted: whoever reads the page has it too.
 * @property {URL | string} [fallback] A plain bundle, for where signatures cannot be checked, or no pack can be had. The
 *   files then come one by one; without signatures nothing but the connection vouches for them.
 * @property {boolean} [report] Whether the server is told the version that this page runs, under a random name.
 */
/** @typedef {{onProgress?: import("../fetch/download.js").OnProgress, signal?: AbortSignal}} Asking */

/** What says that the version is wrong, and not this page. */
const FAULTS = ["execution_error", "unsupported_model", "bundle_error", "manifest_error"];

/** A model of a store, followed by a session. */
export class LiveModel {
  /**
   * @param {string} address
   * @param {string} root
   * @param {StoreOptions} options
   */
  constructor(address, root, { trust, key, fallback, report = false }) {
    this.address = address;
    this.options = { root, trust, key, files: fallback && new URL(fallback, globalThis.location?.href).href };
    this.reports = report;
    /** What runs now. */
    this.running = { version: "", sequence: 0, bundle: "" };
    this.worker = openClient("edge-infer sync", root);
  }

  /**
   * Bring the newest version, and hand it over; the version counts as tried when that succeeds.
   *
   * @template T
   * @param {Asking & {mayBeOld: boolean}} asking
   * @param {(pulled: Pulled) => Promise<T>} take Runs it.
   * @returns {Promise<{taken: T | undefined, update: Update}>} Nothing is taken where it runs already.
   */
  async take({ mayBeOld, onProgress, signal }, take) {
    const started = performance.now();
    const options = { ...this.options, mayBeOld };
    /** @type {Pulled} */
    let pulled;
    try {
      pulled = await this.worker.request({ kind: "pull", address: this.address, options }, { onProgress, signal });
    } catch (error) {
      // It may have been given up at its very end: the worker then has a version that waits for its trial.
      this.settle("undecided").catch(() => {});
      throw error;
    }
    const { version, method, bytesMoved, bytesFull, note, bundle } = pulled;
    const update = { version, changed: bundle !== this.running.bundle, method, bytesMoved, bytesFull, note };
    try {
      const taken = update.changed ? await take(pulled) : undefined;
      await this.settle("active");
      this.running = { version, sequence: pulled.sequence, bundle };
      if (update.changed) this.tell(pulled, "ok", started);
      return { taken, update };
    } catch (error) {
      const isFault = error instanceof EdgeInferError && FAULTS.includes(error.code);
      await this.settle(pulled.isNew && isFault ? "refused" : "undecided");
      if (!isFault || !pulled.isNew) throw error;
      this.tell(pulled, "trial_failed", started, error.message);
      if (mayBeOld) return this.take({ mayBeOld, onProgress, signal }, take); // the one before, where there is one
      throw new EdgeInferError(`Version ${version} failed its trial and is not taken: ${error.message}`, "trial_failed", {
        hint: "the old version runs on, and this one is not tried again; clearModels() forgets that",
        details: { version },
        cause: error,
      });
    }
  }

  /** @param {"active" | "refused" | "undecided"} result */
  settle(result) {
    return this.worker.request({ kind: "settle", address: this.address, result });
  }

  /**
   * Report to the server, if the page wants that; a failed report changes nothing.
   *
   * @param {Pulled} pulled
   * @param {string} result
   * @param {number} started
   * @param {string} [error]
   */
  tell({ device, model, sequence, stage, method, bytesMoved, bytesFull }, result, started, error = "") {
    if (!this.reports) return;
    const seconds = (performance.now() - started) / 1000;
    const body = { device, model, ...this.running, wanted: sequence, stage, method, result, error: error.slice(0, 500), bytes_moved: bytesMoved, bytes_full: bytesFull, seconds, kind: "page" };
    void fetch(new URL("/sync/v1/report", this.address), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      keepalive: true,
    }).catch(() => {});
  }

  /**
   * @param {() => Promise<Update>} look
   * @param {import("./follow.js").FollowOptions} options
   */
  follow(look, options) {
    return follow(look, this.address, options);
  }

  close() {
    this.worker.close();
  }
}
