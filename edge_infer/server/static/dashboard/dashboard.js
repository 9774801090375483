// Asks the server for its counts each second and draws their differences.

import { Chart } from "./chart.js";

const POINTS = 120;
const EVERY_MS = 1000;
const STATE = new URL("./state.json", import.meta.url);

/**
 * @typedef {object} Counts
 * @property {string} name @property {string} version @property {string} pool @property {number} workers
 * @property {string} variant @property {boolean} is_fast @property {string} device
 * @property {number} requests @property {number} failures @property {number} rejections @property {number} cache_hits
 * @property {number} rows @property {number} batches @property {number} max_rows
 * @property {number} queue @property {number} max_queue @property {number} in_flight
 * @property {number[]} bounds @property {number[]} total
 * @property {number} compute_s @property {number} queue_s @property {number} total_s
 *
 * @typedef {object} State
 * @property {string} version @property {number} time @property {boolean} draining @property {number} resident_bytes
 * @property {number} streams @property {Record<string, {workers: number, busy: number}>} pools @property {Counts[]} models
 *
 * @typedef {object} Point What happened in a second.
 * @property {number} rate @property {number | null} p50 @property {number | null} p99 @property {number} queue
 * @property {number | null} fill @property {number} refused @property {number} failed
 */

/** @param {string} id */
const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {number} value */
const count = (value) => (value >= 10_000 ? `${(value / 1000).toFixed(1)}k` : value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1));
/** @param {number} seconds */
const time = (seconds) => {
  const ms = seconds * 1000;
  return ms >= 1000 ? `${(ms / 1000).toFixed(1)}\u2009s` : ms >= 10 ? `${ms.toFixed(0)}\u2009ms` : ms >= 1 ? `${ms.toFixed(1)}\u2009ms` : `${ms.toFixed(2)}\u2009ms`;
};
/** @param {number} part */
const percent = (part) => `${(part * 100).toFixed(0)} %`;

/**
 * Estimate a quantile from counts by upper bound, in a straight line within a bucket.
 * @param {number[]} bounds @param {number[]} counts @param {number} part
 */
export function quantile(bounds, counts, part) {
  const all = counts.reduce((sum, one) => sum + one, 0);
  if (!all) return null;
  let left = part * all;
  for (let i = 0; i < bounds.length; i++) {
    if (left <= counts[i]) {
      const low = i ? bounds[i - 1] : 0;
      return low + (bounds[i] - low) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return bounds[bounds.length - 1];
}

/** @param {Counts} now @param {Counts} before @param {number} seconds @returns {Point} */
function difference(now, before, seconds) {
  const total = now.total.map((value, i) => value - before.total[i]);
  const batches = now.batches - before.batches;
  return {
    rate: (now.requests - before.requests) / seconds,
    p50: quantile(now.bounds, total, 0.5),
    p99: quantile(now.bounds, total, 0.99),
    queue: now.queue,
    fill: batches ? (now.rows - before.rows) / batches / now.max_rows : null,
    refused: (now.rejections - before.rejections) / seconds,
    failed: (now.failures - before.failures) / seconds,
  };
}

class ModelCard {
  /** @param {Counts} counts */
  constructor(counts) {
    /** @type {Point[]} */
    this.points = [];
    this.root = document.createElement("section");
    this.root.className = "card model";
    this.head = document.createElement("div");
    this.head.className = "model-head";
    const charts = document.createElement("div");
    charts.className = "charts";
    this.rate = new Chart("Requests/s", count, POINTS);
    this.latency = new Chart("Latency", time, POINTS);
    this.queue = new Chart("Waiting", count, POINTS);
    this.fill = new Chart("Batch fill", percent, POINTS, 1);
    charts.append(this.rate.root, this.latency.root, this.queue.root, this.fill.root);
    this.root.append(this.head, charts);
    this.before = counts;
    this.#describe(counts, null);
  }

  /** @param {Counts} counts @param {number} seconds */
  update(counts, seconds) {
    // A model that was loaded anew counts from nothing.
    const before = counts.requests < this.before.requests || counts.batches < this.before.batches ? counts : this.before;
    const point = difference(counts, before, seconds);
    this.before = counts;
    this.points = [...this.points, point].slice(-POINTS);
    this.#describe(counts, point);
    /** @template {keyof Point} K @param {K} key */
    const of = (key) => this.points.map((one) => one[key]);
    this.rate.show(
      [{ kind: "area", values: of("rate") }, { kind: "refused", values: of("refused") }],
      `${count(point.rate)}${point.refused ? ` <i class="key-refused">+${count(point.refused)} refused</i>` : ""}`,
    );
    const latency = point.p50 === null || point.p99 === null ? "–" : `<i class="key-first">p50</i>&thinsp;${time(point.p50)} <i class="key-second">p99</i>&thinsp;${time(point.p99)}`;
    this.latency.show([{ kind: "line", values: of("p50") }, { kind: "second", values: of("p99") }], latency);
    this.queue.show([{ kind: "area", values: of("queue") }], `${count(point.queue)} <i>of ${count(counts.max_queue)}</i>`);
    this.fill.show([{ kind: "area", values: of("fill") }], point.fill === null ? "–" : `${percent(point.fill)} <i>of ${counts.max_rows} rows</i>`);
  }

  /** @param {Counts} counts @param {Point | null} point */
  #describe(counts, point) {
    const title = document.createElement("h2");
    title.textContent = counts.name;
    /** @param {string} text @param {string} [kind] */
    const chip = (text, kind = "") => {
      const made = document.createElement("span");
      made.className = `chip ${kind}`;
      made.textContent = text;
      return made;
    };
    const chips = [chip(`version ${counts.version}`), chip(counts.is_fast ? `${counts.variant}, for the rush` : counts.variant, counts.is_fast ? "is-fast" : ""), chip(counts.device)];
    if (counts.pool !== "default") chips.push(chip(`pool ${counts.pool}`));
    if (counts.cache_hits) chips.push(chip(`${count(counts.cache_hits)} from the cache`));
    if (counts.rejections) chips.push(chip(`${count(counts.rejections)} refused`, point?.refused ? "is-bad" : ""));
    if (counts.failures) chips.push(chip(`${count(counts.failures)} failed`, point?.failed ? "is-bad" : ""));
    this.head.replaceChildren(title, ...chips);
  }
}

/** @type {Map<string, ModelCard>} */
const cards = new Map();
/** @type {State | null} */
let before = null;

/** @param {State} state */
function show(state) {
  const seconds = before ? state.time - before.time : 1;
  const main = at("models");
  const keys = new Set();
  for (const counts of state.models) {
    const key = JSON.stringify([counts.name, counts.version, counts.pool]);
    keys.add(key);
    let card = cards.get(key);
    if (!card) {
      card = new ModelCard(counts);
      cards.set(key, card);
      main.append(card.root);
    } else if (before && seconds > 0) card.update(counts, seconds);
  }
  for (const [key, card] of cards) {
    if (!keys.has(key)) {
      card.root.remove();
      cards.delete(key);
    }
  }
  at("note").hidden = state.models.length > 0;
  at("note").textContent = "No model is loaded yet: the first request to one loads it.";
  const points = [...cards.values()].flatMap((card) => card.points.slice(-1));
  /** @param {(point: Point) => number} of */
  const sum = (of) => points.reduce((total, point) => total + of(point), 0);
  const slowest = Math.max(0, ...points.map((point) => point.p99 ?? 0));
  const workers = Object.values(state.pools);
  const busy = workers.reduce((total, pool) => total + pool.busy, 0);
  const all = workers.reduce((total, pool) => total + pool.workers, 0);
  const refused = sum((point) => point.refused);
  const flight = state.models.reduce((total, model) => total + model.in_flight, 0);
  facts([
    ["Requests a second", count(sum((point) => point.rate)), false],
    ["p99, slowest model", slowest ? time(slowest) : "–", false],
    ["In flight", count(flight), false],
    ["Refused a second", count(refused), refused > 0],
    ["Workers busy", `${busy} <small>of ${all}</small>`, false],
    ["Memory", state.resident_bytes ? `${(state.resident_bytes / 2 ** 20).toFixed(0)} <small>MiB</small>` : "–", false],
  ]);
  at("server").textContent = `edge-infer ${state.version} at ${location.host}${state.streams ? `, ${state.streams} open streams` : ""}`;
  status(state.draining ? "lost" : "live", state.draining ? "stopping" : "live");
  before = state;
}

/** @param {[string, string, boolean][]} entries */
function facts(entries) {
  at("facts").innerHTML = entries.map(([name, value, bad]) => `<div class="${bad ? "is-bad" : ""}"><dt>${name}</dt><dd>${value}</dd></div>`).join("");
}

/** @param {string} state @param {string} text */
function status(state, text) {
  const found = at("status");
  if (found.textContent !== text) found.textContent = text;
  found.dataset.state = state;
}

async function ask() {
  const key = sessionStorage.getItem("edge-infer-key");
  try {
    const response = await fetch(STATE, key ? { headers: { Authorization: `Bearer ${key}` } } : {});
    at("key-form").hidden = ![401, 403].includes(response.status);
    if (response.ok) show(await response.json());
    else status("lost", response.status === 401 ? "needs a key" : (await response.json()).error);
  } catch {
    status("lost", "no answer");
    before = null;
  }
  setTimeout(ask, EVERY_MS);
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("edge-infer-key", /** @type {HTMLInputElement} */ (at("key")).value);
});

void ask();
