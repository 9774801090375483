/** The reference of a bundle, what its data looked like when the model was made. The same as `edge_infer.monitor.reference`. */

import { EdgeInferError } from "../errors.js";
import { sha256 } from "../fetch/sha256.js";

/**
 * @typedef {object} Group Features that are taken from one tensor.
 * @property {"inputs" | "outputs"} of
 * @property {string} tensor
 * @property {"columns" | "best" | "vector" | "image"} take
 * @property {string[]} names
 * @property {number} scale What a number is multiplied by before it is rounded, for directions.
 */
/**
 * @typedef {object} Feature
 * @property {string} name
 * @property {number[]} edges The inner edges of its bins; empty for one of categories.
 * @property {number[]} values Its categories; empty for one of numbers.
 * @property {number} low
 * @property {number} high
 */
/** @typedef {{rows: number, groups: Group[], features: Feature[], directions: number[][], digest: string}} Reference */

export const BINS = 20;
export const SIDE = 16;
const VERSION = 1;
const MAX_FEATURES = 4096;

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<Reference>}
 * @throws {EdgeInferError} `bundle_error`: it is damaged, or of another version.
 */
export async function readReference(bytes) {
  try {
    const tensors = tensorsOf(bytes);
    const facts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(tensors.get("facts")?.data));
    if (facts.version !== VERSION) throw new TypeError(`version ${facts.version}, expected ${VERSION}`);
    /** @type {Group[]} */
    const groups = facts.groups.map(group);
    const names = groups.flatMap((one) => one.names);
    if (new Set(names).size !== names.length || names.length < 1 || names.length > MAX_FEATURES) throw new TypeError("its features");
    const edges = floats(tensors.get("edges"));
    const ranges = floats(tensors.get("range"));
    let place = 0;
    const features = names.map((name) => {
      /** @type {number[]} */
      const values = facts.values?.[name] ?? [];
      if (!values.every((one) => typeof one === "number")) throw new TypeError(`the values of \`${name}\``);
      if (values.length) return { name, edges: [], values, low: 0, high: 0 };
      const own = edges.slice(place * (BINS - 1), (place + 1) * (BINS - 1));
      const [low, high] = ranges.slice(2 * place, 2 * place + 2);
      if (own.length !== BINS - 1 || own.some((edge, i) => !(i === 0 || own[i - 1] <= edge))) throw new TypeError(`the edges of \`${name}\``);
      place += 1;
      return { name, edges: own, values, low, high };
    });
    const count = groups.filter(({ take }) => take === "vector" || take === "image").reduce((sum, one) => sum + one.names.length, 0);
    const whole = new Int8Array(tensors.get("directions")?.data.slice().buffer ?? new ArrayBuffer(0));
    const width = count ? whole.length / count : 0;
    if (count && (!Number.isInteger(width) || width < 1)) throw new TypeError("the directions");
    const directions = Array.from({ length: count }, (_, i) => Array.from(whole.subarray(i * width, (i + 1) * width)));
    return { rows: facts.rows, groups, features, directions, digest: await sha256(bytes) };
  } catch (error) {
    throw new EdgeInferError(`The reference of the monitor is damaged: ${error instanceof Error ? error.message : error}`, "bundle_error", {
      hint: "edge-infer monitor reference BUNDLE DATA makes it again",
    });
  }
}

/** @param {any} entry @returns {Group} */
function group({ of, tensor, take, names, scale = 0 }) {
  const listed = typeof names === "number" ? Array.from({ length: Math.min(names, 64) }, (_, i) => `${tensor} ${i + 1}`) : names;
  const isGood = ["inputs", "outputs"].includes(of) && ["columns", "best", "vector", "image"].includes(take) && Array.isArray(listed);
  if (!isGood || !listed.every((/** @type {unknown} */ one) => typeof one === "string")) throw new TypeError("a group");
  return { of, tensor, take, names: listed, scale };
}

/** @typedef {{dtype: string, data: Uint8Array<ArrayBuffer>}} Stored */

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Map<string, Stored>} */
function tensorsOf(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  delete header.__metadata__;
  return new Map(
    Object.entries(header).map(([name, { dtype, data_offsets: [start, end] }]) => {
      const data = bytes.slice(8 + length + start, 8 + length + end);
      if (data.length !== end - start) throw new TypeError(`the tensor \`${name}\``);
      return [name, { dtype, data }];
    }),
  );
}

/** @param {Stored | undefined} stored @returns {number[]} */
function floats(stored) {
  if (!stored) return [];
  if (stored.dtype !== "F32") throw new TypeError(`numbers of ${stored.dtype}`);
  return Array.from(new Float32Array(stored.data.buffer));
}
