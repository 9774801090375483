/** Run a bundle's golden examples on a session, and judge its outputs by the bounds of `edge_infer.parity`, without the rules of top-1 and of slices. */

import { EdgeInferError } from "../errors.js";
import { DTYPES, arrayOver } from "../tensors.js";
import { draw, pick } from "./drawn.js";

/** @typedef {import("../tensors.js").Tensor} Tensor */
/** @typedef {import("../tensors.js").DType} DType */
/** An output that is a part of the source's: its elements, evenly spread over the shape `whole`. @typedef {Tensor & {whole?: number[]}} Golden */
/** @typedef {{inputs: Record<string, Tensor>, outputs: Record<string, Golden>}} Example */
/** How far an output may be from the source: what the manifest says of it. @typedef {{sqnr_db?: number, max_err?: number, equal?: number, steps?: number}} Known */

const FP32_MAX_ERR = 1e-4;
const MIN_SQNR_DB = /** @type {Record<string, number>} */ ({ fp32: 100, fp16: 50 });
const PROBABILITY_MAX_ERR = /** @type {Record<string, number>} */ ({ fp32: 1e-4, fp16: 1e-3 });
const INTEGER_PROBABILITY_MAX_ERR = 1e-2;
const INTEGER_MAX_STEPS = 25;
const INTEGER_MIN_SQNR_DB = 20;
const INTEGER_MIN_EQUAL = 0.95;
/** How much worse than what the manifest says of an output it may be: `edge_infer.parity.verdict`. */
const MARGIN = { db: 6, factor: 4, steps: 2, share: 0.05 };
/** To what an integer output is held: engines may differ by a step. */
const INTEGER_HELD_DB = 36;
const STORED = /** @type {Record<string, DType>} */ ({
  F32: "float32", F64: "float64", F16: "float16", BF16: "bfloat16", I8: "int8", U8: "uint8", I16: "int16", U16: "uint16",
  I32: "int32", U32: "uint32", I64: "int64", U64: "uint64", BOOL: "bool",
});

/**
 * Read the examples of `edge_infer.formats.safetensors.write_examples`: a safetensors file. Random inputs are drawn, as their note in
 * the header's metadata says. Texts and 4-bit values, which have a note too, are left out: an output that is one is not compared, an example that is fed one, or
 * has nothing left to compare, is none.
 *
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Example[]}
 * @throws {EdgeInferError} `bundle_error`: it is not a file of golden examples.
 */
export function readExamples(bytes) {
  /** @type {Map<string, Example>} */
  const examples = new Map();
  const unread = new Set();
  try {
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
    const notes = header.__metadata__ ?? {};
    delete header.__metadata__;
    for (const [key, { dtype, shape, data_offsets: [start, end] }] of Object.entries(header)) {
      const [side, number, ...name] = key.split("/");
      const kind = STORED[dtype];
      const data = bytes.slice(8 + length + start, 8 + length + end);
      if (!kind || (side !== "inputs" && side !== "outputs") || data.length !== end - start) throw new TypeError(`the tensor \`${key}\``);
      const tensor = readNoted(notes[key], { data: arrayOver(kind, data), dtype: kind, shape });
      if (!tensor) {
        if (side === "inputs") unread.add(number);
        continue;
      }
      const example = examples.get(number) ?? { inputs: {}, outputs: {} };
      example[side][name.join("/")] = tensor;
      examples.set(number, example);
    }
  } catch (error) {
    throw new EdgeInferError(`The golden examples cannot be read: ${error}`, "bundle_error", { hint: "convert the bundle again" });
  }
  const isWhole = (/** @type {[string, Example]} */ [number, { outputs }]) => !unread.has(number) && Object.keys(outputs).length > 0;
  return [...examples].filter(isWhole).map(([, example]) => example);
}

/**
 * @param {string | undefined} note
 * @param {Tensor} stored
 * @returns {Golden | null} The tensor that a note stands for; null where it is one that is not read here.
 */
function readNoted(note, stored) {
  if (note === undefined) return stored;
  const [kind, ...rest] = note.split(":");
  const dims = (rest.at(-1) || "").split(",").filter(Boolean).map(Number);
  if (kind === "drawn") return draw(/** @type {DType} */ (rest[1]), dims, Number(rest[0]));
  return kind === "picked" ? { ...stored, whole: dims } : null;
}

/**
 * Run golden examples.
 *
 * @param {{run: (inputs: Record<string, Tensor>, options: {}) => Record<string, any> | Promise<Record<string, any>>}} session
 * @param {Example[]} examples
 * @param {{precision: string, parity?: Record<string, Known>}} variant What the weights are stored in, and what is known of its outputs.
 * @returns {Promise<void>}
 * @throws {EdgeInferError} `execution_error`: it does not give the golden outputs.
 */
export async function requireGolden(session, examples, variant) {
  const judged = await judgeGolden(session, examples, variant);
  if (judged.length === 0) throw failed("there is nothing to compare");
  for (const { name, why } of judged) if (why) throw failed(`output \`${name}\`: ${why}`);
}

/**
 * Run golden examples, and judge each output.
 *
 * @param {{run: (inputs: Record<string, Tensor>, options: {}) => Record<string, any> | Promise<Record<string, any>>}} session
 * @param {Example[]} examples
 * @param {{precision: string, parity?: Record<string, Known>}} variant What the weights are stored in, and what is known of its outputs.
 * @returns {Promise<{name: string, why: string}[]>} By output what is wrong with it; empty where nothing is.
 */
export async function judgeGolden(session, examples, { precision, parity = {} }) {
  /** @type {Record<string, any>[]} */
  const results = [];
  for (const { inputs } of examples) results.push(await session.run(inputs, {}));
  const names = Object.keys(examples[0]?.outputs ?? {});
  return names.map((name) => ({ name, why: judge(examples.map(({ outputs }) => outputs[name]), results.map((result) => result[name]), precision, parity[name]) }));
}

/** @param {string} why */
function failed(why) {
  const details = { golden: why };
  return new EdgeInferError(`The weights do not give their golden outputs: ${why}`, "execution_error", { hint: "publish a better version", details });
}

/**
 * @param {(Golden | undefined)[]} wanted
 * @param {(Tensor | undefined)[]} got
 * @param {string} precision
 * @param {Known} [known]
 * @returns {string} What is wrong; empty where nothing is.
 */
function judge(wanted, got, precision, known) {
  let [values, equal, signal, noise, largest] = [0, 0, 0, 0, 0];
  let isProbability = true;
  const isInteger = !(precision in MIN_SQNR_DB);
  const isFloat = ["float32", "float64", "float16", "bfloat16"].includes(wanted[0]?.dtype ?? "");
  for (let i = 0; i < wanted.length; i++) {
    const [want, whole] = [wanted[i], got[i]];
    if (!want || !whole || want.dtype !== whole.dtype || (want.whole ?? want.shape).join() !== whole.shape.join()) return "another dtype or shape";
    const have = want.whole ? pick(whole, want.shape) : whole;
    for (let j = 0; j < want.data.length; j++) {
      const [a, b] = [number(want, j), number(have, j)];
      values++;
      isProbability &&= !Number.isFinite(a) || (a >= 0 && a <= 1);
      if (a === b || (Number.isNaN(a) && Number.isNaN(b))) equal++;
      else if (!Number.isFinite(a) || !Number.isFinite(b)) return "a value that is not finite on one side only";
      const error = Number.isFinite(a) && Number.isFinite(b) ? Math.abs(a - b) : 0;
      noise += error * error;
      signal += Number.isFinite(a) ? a * a : 0;
      largest = Math.max(largest, error);
    }
  }
  if (["int8", "uint8", "int16", "uint16"].includes(wanted[0]?.dtype ?? "")) {
    const most = known ? MARGIN.factor * (known.steps ?? 0) + MARGIN.steps : isInteger ? INTEGER_MAX_STEPS : 0;
    return largest <= most ? "" : `${largest} steps of the integer output off, expected <= ${most}`;
  }
  if (!isFloat) {
    const share = values ? equal / values : 1;
    const least = known ? (known.equal ?? 1) - MARGIN.share : isInteger ? INTEGER_MIN_EQUAL : 1;
    return share < least ? `${((1 - share) * 100).toFixed(1)} % of the values differ` : "";
  }
  if (noise === 0) return "";
  if (isProbability && largest <= (PROBABILITY_MAX_ERR[precision] ?? INTEGER_PROBABILITY_MAX_ERR)) return "";
  const relative = largest / Math.sqrt(signal / values);
  const sqnr = 10 * Math.log10(signal / noise);
  const [leastDb, mostErr] = floatLimits(precision, known);
  if (precision === "fp32" && !(relative <= mostErr)) return `max err ${relative.toExponential(1)} x rms, expected <= ${mostErr.toExponential(0)}`;
  return sqnr >= leastDb ? "" : `SQNR ${sqnr.toFixed(1)} dB, expected >= ${leastDb.toFixed(0)}`;
}

/**
 * @param {string} precision
 * @param {Known} [known]
 * @returns {[number, number]} The least SQNR in dB, and the largest error over the rms, of an output of floats.
 */
function floatLimits(precision, known) {
  const least = MIN_SQNR_DB[precision] ?? INTEGER_MIN_SQNR_DB;
  if (!known) return [least, FP32_MAX_ERR];
  if (!(precision in MIN_SQNR_DB)) return [Math.min(known.sqnr_db ?? Infinity, INTEGER_HELD_DB) - MARGIN.db, Infinity];
  return [Math.min(least, (known.sqnr_db ?? Infinity) - MARGIN.db), Math.max(FP32_MAX_ERR, MARGIN.factor * (known.max_err ?? 0))];
}

const scratch = new DataView(new ArrayBuffer(4));

/** @param {Tensor} tensor @param {number} index */
function number({ data, dtype }, index) {
  const value = Number(data[index]);
  if (dtype === "bfloat16") {
    scratch.setUint32(0, value << 16);
    return scratch.getFloat32(0);
  }
  if (dtype !== "float16" || DTYPES.float16.arrays[0] !== Uint16Array) return value;
  const [exponent, fraction] = [(value >> 10) & 31, value & 1023];
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? Number.NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return value & 0x8000 ? -size : size;
}
