/** Remember the speeds that `tune` measured of a bundle in this browser, beside the models, for the next load. */

/** @typedef {import("../cache/store.js").Store} Store */
/** @typedef {"ort" | "litert" | "compiled"} EngineName An engine of a page. */
/** @typedef {{variant: string, backend: EngineName, device: "wasm" | "webgpu", threads: number}} Way A way to run a bundle, by its variant's id. */
/** @typedef {Way & {ms: number, spread: number}} Measurement The median time of a run in the worker in milliseconds, and half the distance of
 *   the quartiles over the median. */
/** @typedef {Way & {reason: string, isWrong: boolean}} Failure A way that fails; where `isWrong`, it runs and gives other than the golden outputs. */
/** @typedef {{rows: Measurement[], wrong: Way[]}} Measured Ways that work, and ways that give wrong answers. */
/** @typedef {{variant?: string, backend?: Way["backend"], device?: "auto" | Way["device"], threads?: number}} Asked */

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
    return { rows: rows.filter((/** @type {Measurement} */ row) => isWay(row) && row.ms > 0), wrong: wrong.filter(isWay) };
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
 * @returns {(Measurement & {why: string}) | undefined} The fastest of those that are what was asked for.
 */
export function fastest(rows, { variant, backend, device = "auto", threads }) {
  const fitting = rows.filter(
    (row) =>
      (variant === undefined || row.variant === variant) &&
      (backend === undefined || row.backend === backend) &&
      (device === "auto" || row.device === device) &&
      (threads === undefined || row.threads === threads),
  );
  const best = fitting.toSorted((one, other) => one.ms - other.ms)[0];
  return best && { ...best, why: `measured: the fastest of ${fitting.length} ways that keep the quality: ${best.ms.toPrecision(3)} ms` };
}
