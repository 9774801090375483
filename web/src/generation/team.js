/** Threads of a page that compute a decoder's batches together, and how many of them are worth it just now. */

import { canShareMemory } from "../engines/threads.js";
import { EdgeInferError } from "../errors.js";
import { sharedMemory } from "./kernels.js";

/** @typedef {import("./kernels.js").Kernels} Kernels */
/** @typedef {() => Worker} StartWorker Starts `page/decoder-worker.js`. */
/**
 * @typedef {object} Joining What a thread is told: it joins the batches of one decoder.
 * @property {WebAssembly.Module} module
 * @property {WebAssembly.Memory} memory
 * @property {number} team Where the team stands in memory.
 * @property {number} index Of the thread, from 1 on.
 * @property {number} stack Where its stack begins, downwards.
 */

/** The most threads that are taken unasked. */
const MAX_THREADS = 4;
/** Rows of a batch that is measured as a prompt; a step of some streams has fewer. */
const PROMPT_ROWS = 16;
/** Batches in a row that one number of threads computes while two are compared. */
const TRIAL = 4;
/** Batches between two comparisons: doubled each time that the choice stays. */
const [SHORTEST, LONGEST] = [16, 256];
/** Bytes of a thread's stack, as `edge_infer/kernels/build.py` gives the first one. */
const STACK_BYTES = 32768;

/**
 * Decide how many threads a decoder may have here.
 *
 * @param {number | undefined} wanted What the caller asks for.
 * @returns {number} What is wanted; unless given as many as there are processors, at most 4, and 1 where there can be no more.
 * @throws {EdgeInferError} `unsupported`: more than one is wanted, and there can be no more.
 */
export function threadsHere(wanted) {
  if (wanted === 1) return 1;
  const missing = missingForThreads();
  if (wanted === undefined) return missing ? 1 : Math.min(MAX_THREADS, navigator.hardwareConcurrency);
  if (missing) throw new EdgeInferError(`The decoder cannot have ${wanted} threads: ${missing}`, "unsupported", { hint: "leave `threads` out" });
  return wanted;
}

/** @returns {string} What this place lacks; empty where a decoder can have threads. */
function missingForThreads() {
  if (!canShareMemory()) return "only a page that is cross-origin isolated shares memory (`edge-infer serve` sends the headers)";
  try {
    // Refused where a thread may not sleep, as the page's own, before the value is compared.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 1);
  } catch {
    return "this thread may not wait for others; a worker may";
  }
  return sharedMemory(1) ? "" : "the browser reserves no shared memory";
}

/**
 * Chooses between one thread and all of them by what they took lately: `ThreadChoice` of `edge_infer.generation.team`.
 */
export class ThreadChoice {
  /** @type {Map<number, number>} */
  #averages = new Map();
  #period = SHORTEST;
  #left = -1;
  /** @type {number[]} */
  #trial = [];
  #trials;
  #current;

  /** @param {number} most All of them. */
  constructor(most) {
    this.most = most;
    this.#current = most;
    this.#trials = [1, most];
  }

  /** @returns {number} How many compute the next batch. */
  get threads() {
    return this.#trials.at(-1) ?? this.#current;
  }

  /** @param {number} time What a row of the last batch took. */
  add(time) {
    const tried = this.#trials.at(-1);
    if (tried === undefined) {
      this.#left -= 1;
      if (this.#left <= 0) this.#trials = [this.#current, this.#current === 1 ? this.most : 1];
      return;
    }
    this.#trial.push(time);
    if (this.#trial.length < TRIAL) return;
    // The first batch wakes threads, and reads weights that were never read.
    this.#averages.set(tried, this.#trial.slice(1).reduce((sum, one) => sum + one) / (TRIAL - 1));
    this.#trial = [];
    this.#trials.pop();
    if (this.#trials.length === 0) this.#choose();
  }

  #choose() {
    const [[best]] = [...this.#averages].sort(([, one], [, other]) => one - other);
    this.#period = best === this.#current ? Math.min(2 * this.#period, LONGEST) : SHORTEST;
    this.#current = best;
    this.#left = this.#period;
  }
}

/** Workers that take part in a decoder's batches as they come, until `close`. How many have come changes no bit of a result. */
export class Team {
  #kernels;
  #place;
  #choices;
  #isBroken = false;

  /**
   * @param {Kernels} kernels
   * @param {number} place Where the team stands: `decoder_team_bytes`, all zero.
   * @param {number} threads All of them, the caller of `run` included: 2 or more.
   * @param {boolean} isFixed Whether all of them always take part; else as many as are faster.
   */
  constructor(kernels, place, threads, isFixed) {
    this.#kernels = kernels;
    this.#place = place;
    this.most = threads;
    this.#choices = isFixed ? undefined : [new ThreadChoice(threads), new ThreadChoice(threads)];
    kernels.decoder_team_begin(place, threads);
  }

  /** @returns {number} Bytes of the stacks of all threads but the first. @param {number} threads */
  static stackBytes(threads) {
    return STACK_BYTES * (threads - 1);
  }

  /**
   * Start the workers. Nobody waits for them: they may come when some batches are done.
   * Where the page's policy allows none, one thread computes, unless the number is fixed.
   *
   * @param {StartWorker} startWorker
   * @param {WebAssembly.Module} module
   * @param {WebAssembly.Memory} memory
   * @param {number} stacks Where their stacks stand.
   */
  start(startWorker, module, memory, stacks) {
    try {
      for (let index = 1; index < this.most; index++) {
        /** @type {Joining} */
        const joining = { module, memory, team: this.#place, index, stack: stacks + STACK_BYTES * index };
        startWorker().postMessage(joining);
      }
    } catch (error) {
      this.close();
      if (!this.#choices) throw error;
    }
  }

  /** @returns {number} How many of them take part in the next token's batch; a worker that has not come is not counted. */
  get threads() {
    if (this.#isBroken) return 1;
    const present = this.#kernels.decoder_team_present(this.#place);
    if (!this.#choices) return present;
    return present < this.most ? 1 : this.#choices[0].threads;
  }

  /**
   * Compute a batch.
   *
   * @param {number} rows
   * @param {number[]} values Those of `decoder_run`.
   * @throws {EdgeInferError} `execution_error`: a worker was ended while it computed; later batches are computed by one thread.
   */
  run(rows, values) {
    const kernels = this.#kernels;
    if (this.#isBroken) {
      kernels.decoder_run(...values);
    } else if (!this.#choices) {
      this.#together(values);
    } else if (kernels.decoder_team_present(this.#place) < this.most) {
      kernels.decoder_run(...values); // nothing is compared before all have come
    } else {
      const choice = this.#choices[Number(rows >= PROMPT_ROWS)];
      const start = performance.now();
      if (choice.threads === 1) kernels.decoder_run(...values);
      else this.#together(values);
      choice.add((performance.now() - start) / rows);
    }
  }

  /** @param {number[]} values Those of `decoder_run`. */
  #together(values) {
    try {
      this.#kernels.decoder_run_shared(this.#place, ...values);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      this.#isBroken = true; // what is left of the worker's part is computed by nobody
      this.close();
      throw new EdgeInferError("A worker of the decoder was ended while it computed", "execution_error", {
        hint: "ask again: one thread computes from here on",
        cause: error,
      });
    }
  }

  /** Let the threads end. */
  close() {
    this.#kernels.decoder_team_end(this.#place);
  }
}
