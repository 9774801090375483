/** Read an ONNX file for a look at it: operators, ends and the bytes of each layer. The fields are those of onnx.proto3. */

/** @typedef {{operator: string, name: string, bytes: number}} Layer */
/** @typedef {{name: string, dtype: string, shape: (number | string)[]}} End */
/** @typedef {{format: string, version: string, inputs: End[], outputs: End[], layers: Layer[]}} Seen */
/** A field of a message: its number, and its value, or where its bytes are. @typedef {{id: number, value: number, start: number, end: number}} Field */

const TYPES = ["?", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "float64", "uint32", "uint64"];
const text = new TextDecoder();

/**
 * @param {Uint8Array} bytes
 * @returns {Seen}
 * @throws {RangeError} It is not an ONNX file, or was cut short.
 */
export function readOnnx(bytes) {
  const model = fieldsOf(bytes, 0, bytes.length);
  const all = (/** @type {Field[]} */ fields, /** @type {number} */ id) => fields.filter((field) => field.id === id);
  const message = (/** @type {Field | undefined} */ field) => (field ? fieldsOf(bytes, field.start, field.end) : []);
  const word = (/** @type {Field | undefined} */ field) => (field ? text.decode(bytes.subarray(field.start, field.end)) : "");
  const graph = message(all(model, 7)[0]);
  if (all(graph, 1).length === 0) throw new RangeError("no graph");
  /** The weights that no layer before has counted. @type {Map<string, number>} */
  const weights = new Map(all(graph, 5).map((field) => [word(all(message(field), 8)[0]), field.end - field.start]));
  const isWeight = new Set(weights.keys());
  const ends = (/** @type {number} */ id) => all(graph, id).map(message).filter((fields) => !isWeight.has(word(all(fields, 1)[0]))).map((fields) => {
    const tensor = message(all(message(all(fields, 2)[0]), 1)[0]);
    const dims = all(message(all(tensor, 2)[0]), 1).map(message).map((dim) => all(dim, 1)[0]?.value ?? (word(all(dim, 2)[0]) || "?"));
    return { name: word(all(fields, 1)[0]), dtype: TYPES[all(tensor, 1)[0]?.value ?? 0] ?? "?", shape: dims };
  });
  const layers = all(graph, 1).map(message).map((node) => {
    let sum = 0;
    for (const input of all(node, 1)) {
      sum += weights.get(word(input)) ?? 0;
      weights.delete(word(input));
    }
    return { operator: word(all(node, 4)[0]), name: word(all(node, 3)[0]) || word(all(node, 2)[0]), bytes: sum };
  });
  const opset = all(model, 8).map(message).find((fields) => !word(all(fields, 1)[0]));
  const version = `opset ${opset ? (all(opset, 2)[0]?.value ?? "?") : "?"}, written by ${word(all(model, 2)[0]) || "nobody who says so"}`;
  return { format: "ONNX", version, inputs: ends(11), outputs: ends(12), layers };
}

/** @param {Uint8Array} bytes @param {number} start @param {number} end @returns {Field[]} */
function fieldsOf(bytes, start, end) {
  const found = [];
  let place = start;
  const varint = () => {
    let [value, scale] = [0, 1];
    for (;;) {
      if (place >= end || scale > 2 ** 63) throw new RangeError("cut short");
      const byte = bytes[place++];
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) return value;
    }
  };
  while (place < end) {
    const key = varint();
    const [id, wire] = [Math.floor(key / 8), key & 7];
    if (wire === 0) found.push({ id, value: varint(), start: 0, end: 0 });
    else if (wire === 2) {
      const length = varint();
      if (place + length > end) throw new RangeError("cut short");
      found.push({ id, value: 0, start: place, end: place + length });
      place += length;
    } else if (wire === 5) place += 4;
    else if (wire === 1) place += 8;
    else throw new RangeError(`wire type ${wire}`);
  }
  return found;
}
