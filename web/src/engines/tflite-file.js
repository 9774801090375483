/**
 * Read the inputs of a `.tflite` file, and write copies of it with other input shapes: LiteRT.js cannot resize an input,
 * so a file with the wanted shape is loaded instead.
 *
 * The layout is FlatBuffers' (https://flatbuffers.dev/internals): a table starts with a signed offset back to its
 * vtable, which holds its own size, the table's size and the offset of each field; a field that is a table, a vector
 * or a string holds an offset forward. The field numbers are those of tensorflow/lite/schema/schema.fbs, version 3.
 */

import { EdgeInferError } from "../errors.js";

const IDENTIFIER = "TFL3";
const MODEL = { operatorCodes: 1, subgraphs: 2, signatures: 7 };
const OPERATOR_CODE = { old: 0, now: 3 };
const SUBGRAPH = { tensors: 0, inputs: 1 };
const TENSOR = { shape: 0, name: 3, isVariable: 5, shapeSignature: 7 };
// BuiltinOperator of the schema: the kernels that may write to variable tensors (CUSTOM may be any), and the resources.
const WITH_VARIABLE_TENSORS = [16, 24, 27, 32, 35, 44, 46, 52];
const VAR_HANDLE = 142;
const SIGNATURE = { inputs: 0, subgraph: 4 };
const TENSOR_MAP = { name: 0, tensor: 1 };

/**
 * Name the ends of a graph without a signature: one without a name is called by its side and place, `input_0`.
 *
 * @param {string[]} names What the file calls them.
 * @param {"input" | "output"} side
 * @param {number} [first] The place of the first of them.
 * @returns {string[]}
 */
export function endNames(names, side, first = 0) {
  return names.map((name, i) => name || `${side}_${first + i}`);
}

/** A `.tflite` file; a read outside it is an `unsupported_model` error. */
export class TfliteFile {
  /**
   * @param {Uint8Array} bytes
   * @throws {EdgeInferError} `unsupported_model`: it is not a TFLite file, or was cut short.
   */
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const identifier = new TextDecoder().decode(bytes.slice(4, 8));
    if (identifier !== IDENTIFIER) throw broken(`has no \`${IDENTIFIER}\` at byte 4`);
    /** Where the table of each input is, by the input's name. */
    this.inputs = this.whole(() => this.findInputs());
  }

  /**
   * @template T
   * @param {() => T} read
   * @returns {T}
   */
  whole(read) {
    try {
      return read();
    } catch (error) {
      if (error instanceof RangeError) throw broken("refers to places outside itself");
      throw error;
    }
  }

  /** @returns {Map<string, number>} */
  findInputs() {
    const model = this.follow(0);
    const signatures = this.vector(model, MODEL.signatures);
    const signature = this.length(signatures) === 0 ? 0 : this.item(signatures, 0);
    const number = signature === 0 ? 0 : this.number(signature, SIGNATURE.subgraph);
    const subgraph = this.item(this.vector(model, MODEL.subgraphs), number);
    const tensors = this.vector(subgraph, SUBGRAPH.tensors);
    /** @type {Map<string, number>} */
    const found = new Map();
    if (signature !== 0) {
      const maps = this.vector(signature, SIGNATURE.inputs);
      for (let i = 0; i < this.length(maps); i++) {
        const map = this.item(maps, i);
        found.set(this.text(map, TENSOR_MAP.name), this.item(tensors, this.number(map, TENSOR_MAP.tensor)));
      }
      return found;
    }
    const inputs = this.vector(subgraph, SUBGRAPH.inputs);
    for (let i = 0; i < this.length(inputs); i++) {
      const tensor = this.item(tensors, this.view.getUint32(inputs + 4 + 4 * i, true));
      found.set(endNames([this.text(tensor, TENSOR.name)], "input", i)[0], tensor);
    }
    return found;
  }

  /** @returns {boolean} Whether the model keeps values of its own from one run to the next: variables. */
  get hasState() {
    return this.whole(() => {
      const model = this.follow(0);
      const codes = this.tables(model, MODEL.operatorCodes).map((table) =>
        Math.max(this.byte(table, OPERATOR_CODE.old), this.number(table, OPERATOR_CODE.now)),
      );
      if (codes.includes(VAR_HANDLE)) return true;
      if (!codes.some((code) => WITH_VARIABLE_TENSORS.includes(code))) return false;
      const subgraphs = this.tables(model, MODEL.subgraphs);
      return subgraphs.some((graph) => this.tables(graph, SUBGRAPH.tensors).some((one) => this.byte(one, TENSOR.isVariable) !== 0));
    });
  }

  /**
   * @param {string} name
   * @returns {number[]} The shape that the file gives an input to start with; its free dimensions are mostly 1.
   */
  shapeOf(name) {
    return this.whole(() => {
      const shape = this.vector(this.tensorOf(name), TENSOR.shape);
      return Array.from({ length: this.length(shape) }, (_, i) => this.view.getInt32(shape + 4 + 4 * i, true));
    });
  }

  /**
   * Make a copy whose inputs have other shapes, fixed ones.
   *
   * @param {Record<string, readonly number[]>} shapes Of some inputs, each of the rank that it has.
   * @returns {Uint8Array<ArrayBuffer>}
   */
  withShapes(shapes) {
    const wanted = Object.entries(shapes);
    // Vectors of other tensors may be the same bytes: new ones are put behind the end, and the inputs refer to them.
    const start = Math.ceil(this.bytes.length / 4) * 4;
    const grown = new Uint8Array(start + wanted.reduce((sum, [, shape]) => sum + 4 + 4 * shape.length, 0));
    grown.set(this.bytes);
    const view = new DataView(grown.buffer);
    let end = start;
    for (const [name, shape] of wanted) {
      const tensor = this.tensorOf(name);
      for (const field of [TENSOR.shape, TENSOR.shapeSignature]) {
        const place = this.whole(() => this.field(tensor, field));
        if (place !== 0) view.setUint32(place, end - place, true);
      }
      [shape.length, ...shape].forEach((word, i) => view.setInt32(end + 4 * i, word, true));
      end += 4 + 4 * shape.length;
    }
    return grown;
  }

  /** @param {string} name */
  tensorOf(name) {
    const tensor = this.inputs.get(name);
    if (tensor === undefined) throw broken(`does not say which tensor its input \`${name}\` is`);
    return tensor;
  }

  /**
   * @param {number} table
   * @param {number} number
   * @returns {number} Where a field is; 0 where the table has none.
   */
  field(table, number) {
    const { view } = this;
    const vtable = table - view.getInt32(table, true);
    if (6 + 2 * number > view.getUint16(vtable, true)) return 0;
    const offset = view.getUint16(vtable + 4 + 2 * number, true);
    return offset === 0 ? 0 : table + offset;
  }

  /** @param {number} place @returns {number} What the offset at a place refers to. */
  follow(place) {
    return place + this.view.getUint32(place, true);
  }

  /** @param {number} table @param {number} number @returns {number} A vector or string; 0 where there is none. */
  vector(table, number) {
    const place = this.field(table, number);
    return place === 0 ? 0 : this.follow(place);
  }

  /** @param {number} vector @returns {number} */
  length(vector) {
    return vector === 0 ? 0 : this.view.getUint32(vector, true);
  }

  /** @param {number} vector @param {number} index @returns {number} A table of a vector of tables. */
  item(vector, index) {
    if (index >= this.length(vector)) throw new RangeError("index");
    return this.follow(vector + 4 + 4 * index);
  }

  /** @param {number} table @param {number} number @returns {number[]} The tables of a vector of tables. */
  tables(table, number) {
    const vector = this.vector(table, number);
    return Array.from({ length: this.length(vector) }, (_, i) => this.item(vector, i));
  }

  /** @param {number} table @param {number} number @returns {number} */
  byte(table, number) {
    const place = this.field(table, number);
    return place === 0 ? 0 : this.view.getUint8(place);
  }

  /** @param {number} table @param {number} number @returns {number} */
  number(table, number) {
    const place = this.field(table, number);
    return place === 0 ? 0 : this.view.getUint32(place, true);
  }

  /** @param {number} table @param {number} number @returns {string} */
  text(table, number) {
    const place = this.vector(table, number);
    const length = this.length(place);
    if (place + 4 + length > this.bytes.length) throw new RangeError("text");
    return new TextDecoder().decode(this.bytes.slice(place + 4, place + 4 + length));
  }
}

/** @param {string} how */
function broken(how) {
  return new EdgeInferError(`The engine cannot load the model: the file ${how}`, "unsupported_model", {
    hint: "the file is cut short or no TFLite model: fetch or convert it again",
    details: { engine: "litert-web" },
  });
}
