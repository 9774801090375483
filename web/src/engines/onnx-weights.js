/**
 * Take the large weights out of an ONNX file without copying them, so that the engine reads each from the file straight into
 * its place. Given the file itself, it holds the file, a parsed copy and the weights at once, in memory that never shrinks.
 *
 * The numbers of the fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
 */

/** @typedef {{number: number, wire: number, tag: number, start: number, end: number}} Field Where it begins, and where its content does and ends. */
/** @typedef {{length: number, at: (index: number) => number | undefined, subarray: (start: number, end: number) => Uint8Array}} Source A file that need not be in memory. */
/** @typedef {{graph: Uint8Array<ArrayBuffer>, name: string}} Apart The file without its large weights, and the name by which it refers to them. */

const [GRAPH, INITIALIZER, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION] = [7, 5, 9, 13, 14];
const [VARINT, BYTES] = [0, 2];
const FIXED = new Map([[1, 8], [5, 4]]);
const EXTERNAL = 1;
/** What the engine is told that the weights lie in. */
const NAME = "edge-infer-weights";
/** Weights of fewer bytes stay in the file: shapes and the like are read from there. */
const MIN_BYTES = 65_536;

/**
 * @param {Source} model The bytes of an `.onnx` file.
 * @param {number} [minBytes]
 * @returns {Apart | undefined} Undefined where it has no large weights, or is no such file: then the engine says what is wrong.
 */
export function weightsApart(model, minBytes = MIN_BYTES) {
  let count = 0;
  /** @param {Field} tensor @returns {Piece[] | undefined} */
  const withoutWeights = (tensor) => {
    const fields = [...fieldsOf(model, tensor.start, tensor.end)];
    const raw = fields.filter(({ number, wire }) => number === RAW_DATA && wire === BYTES);
    const isElsewhere = fields.some(({ number }) => number === EXTERNAL_DATA || number === DATA_LOCATION);
    if (raw.length !== 1 || isElsewhere || raw[0].end - raw[0].start < minBytes) return undefined;
    count += 1;
    const [{ tag, start, end }] = raw;
    const place = { location: NAME, offset: String(start), length: String(end - start) };
    const entries = Object.entries(place).map(([key, value]) => written(EXTERNAL_DATA, [...written(1, utf8(key)), ...written(2, utf8(value))]));
    const added = [...entries.flat(), ...varint((DATA_LOCATION << 3) | VARINT), EXTERNAL];
    return [model.subarray(tensor.start, tag), model.subarray(end, tensor.end), Uint8Array.from(added)];
  };
  try {
    const pieces = rewritten(model, 0, model.length, GRAPH, (graph) => rewritten(model, graph.start, graph.end, INITIALIZER, withoutWeights));
    return count > 0 && pieces ? { graph: joined(pieces), name: NAME } : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** @typedef {Uint8Array} Piece */

/**
 * Write a message again, with other contents for some of its fields.
 *
 * @param {Source} bytes
 * @param {number} start
 * @param {number} end
 * @param {number} number That of the fields.
 * @param {(field: Field) => Piece[] | undefined} change Gives the new content; undefined where it stays.
 * @returns {Piece[] | undefined} Undefined where all stay.
 */
function rewritten(bytes, start, end, number, change) {
  /** @type {Piece[]} */
  const pieces = [];
  let from = start;
  for (const field of fieldsOf(bytes, start, end)) {
    const content = field.number === number && field.wire === BYTES ? change(field) : undefined;
    if (!content) continue;
    const size = content.reduce((sum, piece) => sum + piece.length, 0);
    pieces.push(bytes.subarray(from, field.tag), Uint8Array.from([...varint((number << 3) | BYTES), ...varint(size)]), ...content);
    from = field.end;
  }
  if (pieces.length === 0) return undefined;
  pieces.push(bytes.subarray(from, end));
  return pieces;
}

/**
 * @param {Source} bytes
 * @param {number} start
 * @param {number} end
 * @returns {Generator<Field>}
 * @throws {RangeError} It is no message, or one of groups.
 */
function* fieldsOf(bytes, start, end) {
  for (let at = start; at < end; ) {
    const tag = at;
    const [key, content] = readVarint(bytes, at, end);
    const [number, wire] = [Math.floor(key / 8), key % 8];
    let from = content;
    let size = FIXED.get(wire);
    if (wire === VARINT) size = readVarint(bytes, content, end)[1] - content;
    else if (wire === BYTES) [size, from] = readVarint(bytes, content, end);
    if (number === 0 || size === undefined || from + size > end) throw new RangeError("not a message of protobuf");
    at = from + size;
    yield { number, wire, tag, start: from, end: at };
  }
}

/**
 * @param {Source} bytes
 * @param {number} at
 * @param {number} end
 * @returns {[value: number, end: number]} The value is not exact above 2^53, where it is larger than any file.
 */
function readVarint(bytes, at, end) {
  let value = 0;
  for (let i = 0; i < 10 && at + i < end; i++) {
    const byte = /** @type {number} */ (bytes.at(at + i));
    value += (byte & 127) * 2 ** (7 * i);
    if (byte < 128) return [value, at + i + 1];
  }
  throw new RangeError("not a number of protobuf");
}

/** @param {number} value @returns {number[]} */
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}

/** @param {number} number @param {ArrayLike<number>} content @returns {number[]} A field of bytes. */
function written(number, content) {
  return [...varint((number << 3) | BYTES), ...varint(content.length), ...Array.from(content)];
}

/** @param {string} text */
function utf8(text) {
  return new TextEncoder().encode(text);
}

/** @param {Piece[]} pieces @returns {Uint8Array<ArrayBuffer>} */
function joined(pieces) {
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}
