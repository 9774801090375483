/** Remember the speeds that `tune` measured of a bundle in this browser, beside the models, for the next load. */

/** @typedef {import("../cache/store.js").Store} Store */
/** @typedef {"ort" | "litert" | "compiled"} EngineName An engine of a page. */
/** @typedef {{variant: string, backend: EngineName, device: "wasm" | "webgpu", threads: number}} Way A way to run a bundle, by its variant's id. */
/** @typedef {Way & {ms: number, spread: number, vsRule?: number}} Measurement The median time of a run in the worker in milliseconds, half the
 *   distance of the quartiles over the median, and the time over that of the way that the rules choose, at the upper end of the interval that
 *   holds the median of the rounds' ratios with 95 %: below 1 it is faster for sure. 1 of that way itself; not there where the two were not
 *   measured side by side. */
/** @typedef {Way & {reason: string, isWrong: boolean}} Failure A way that fails; where `isWrong`, it runs and gives other than the golden outputs. */
/** @typedef {{rows: Measurement[], wrong: Way[]}} Measured Ways that work, and ways that give wrong answers. */
/** @typedef {{variant?: string, backend?: Way["backend"], device?: "auto" | "webnn" | Way["device"], threads?: number}} Asked */

const FORMAT = 1;

/** @returns {string} What a measurement depends on besides the bundle: it counts nowhere else. */
function machine() {
  const { hardwareConcurrency, userAgent } = globalThis.navigator ?? {};
  return `${hardwareConcurrency} processors, ${globalThis.crossOriginIsolated ? "isolated" : "not isolated"}, ${userAgent}`;
}

/** @param {string} revision */
const nameOf = (revision) => `measured-${revision}`;

/**
 * @param {Store} store
 * @param {string} revision The bundle's.
 * @param {Measurement[]} rows
 * @param {Failure[]} failed What does not work; what was measured of all other ways before stays.
 */
export async function rememberMeasured(store, revision, rows, failed) {
  const keyOf = (/** @type {Way} */ way) => [way.variant, way.backend, way.device, way.threads].join();
  const tried = new Set([...rows, ...failed].map(keyOf));
  const isOther = (/** @type {Way} */ way) => !tried.has(keyOf(way));
  const before = await recallMeasured(store, revision);
  const wrong = [...before.wrong.filter(isOther), ...failed.filter(({ isWrong }) => isWrong)];
  const document = { format: FORMAT, machine: machine(), rows: [...before.rows.filter(isOther), ...rows], wrong };
  await store.remember(nameOf(revision), new TextEncoder().encode(JSON.stringify(document)));
}

/**
 * @param {Store} store
 * @param {string} revision
 * @returns {Promise<Measured>} Nothing where nothing was measured here, or it cannot be read.
 */
export async function recallMeasured(store, revision) {
  try {
    const bytes = await store.recall(nameOf(revision));
    const document = bytes && JSON.parse(new TextDecoder().decode(bytes));
    if (document?.format !== FORMAT || document.machine !== machine()) return { rows: [], wrong: [] };
    const { rows, wrong = [] } = document;
    const isWay = (/** @type {Way} */ way) => typeof way?.variant === "string";
    return { rows: rows.filter((/** @type {Measurement} */ row) => isWay(row) && row.ms > 0 && (row.vsRule === undefined || row.vsRule > 0)), wrong: wrong.filter(isWay) };
  } catch {
    return { rows: [], wrong: [] }; // damaged, or the storage fails: the rules choose
  }
}

/**
 * @param {Way[]} wrong
 * @param {Asked} asked
 * @returns {string[]} The variants that give wrong answers on the device that the rules take.
 */
export function wrongVariants(wrong, { device = "auto" }) {
  const taken = device === "auto" ? "wasm" : device;
  return wrong.filter((way) => way.device === taken).map(({ variant }) => variant);
}

/**
 * @param {Measurement[]} rows
 * @param {Asked} asked
 * @returns {(Measurement & {why: string}) | undefined} Of those that are what was asked for the fastest that is surely not slower than the
 *   rule's choice.
 */
export function fastest(rows, { variant, backend, device = "auto", threads }) {
  const fitting = rows.filter(
    (row) =>
      (variant === undefined || row.variant === variant) &&
      (backend === undefined || row.backend === backend) &&
      (device === "auto" || row.device === device) &&
      (threads === undefined || row.threads === threads),
  );
  const byTime = fitting.toSorted((one, other) => one.ms - other.ms);
  const best = byTime.find(({ vsRule }) => vsRule === undefined || vsRule <= 1) ?? byTime[0];
  if (!best) return undefined;
  const isNoisy = best.vsRule === 1 && byTime[0].ms < best.ms;
  const said = isNoisy ? "too noisy to tell a faster way from the rule's choice" : `the fastest of ${fitting.length} ways that keep the quality`;
  return { ...best, why: `measured: ${said}: ${best.ms.toPrecision(3)} ms` };
}

/**
 * Compare the rounds of a way with those of the rule's way, as `edge_infer.runtime.tuning.upper_ratio` does.
 *
 * @param {number[]} times
 * @param {number[]} base Of the same rounds.
 * @returns {number} The upper end of the interval that holds the median of the paired ratios with at least 95 %: that of the order
 *   statistics (the sign test); with five rounds it is their whole range, 94 %.
 */
export function upperRatio(times, base) {
  const ratios = times.map((time, i) => time / base[i]).sort((one, other) => one - other);
  const place = Math.max(0, Math.trunc(ratios.length / 2 - 0.98 * Math.sqrt(ratios.length)));
  return ratios[ratios.length - 1 - place];
}
