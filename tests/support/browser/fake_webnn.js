// An imitation of WebNN (https://www.w3.org/TR/webnn/) for one net of dense layers: what ONNX Runtime's provider asks of it, and no more.
// Its context may be lost, by `lose()`; its names of operators are in `built`.
globalThis.built = [];
const types = ["float32"];
const any = { dataTypes: types, rankRange: { min: 0, max: 5 } };
const limits = (...names) => Object.fromEntries([...names, "output"].map((name) => [name, any]));
let lose;
class Tensor {
  constructor(shape) {
    this.shape = shape;
    this.data = new Float32Array(shape.reduce((a, b) => a * b, 1));
  }
  destroy() {}
}
class Context {
  constructor() {
    this.lost = new Promise((resolve) => (lose = resolve));
    globalThis.lose = () => lose({ message: "the device was unplugged" });
  }
  opSupportLimits() {
    const own = { gemm: limits("a", "b", "c"), relu: limits("input") };
    return { preferredInputLayout: "nchw", maxTensorByteLength: 2 ** 31 - 1, input: any, constant: any, output: any, ...own };
  }
  async createTensor({ shape, dimensions = shape }) {
    return new Tensor(dimensions);
  }
  writeTensor(tensor, from) {
    const { buffer, byteOffset, byteLength } = ArrayBuffer.isView(from) ? from : new Uint8Array(from);
    new Uint8Array(tensor.data.buffer).set(new Uint8Array(buffer, byteOffset, byteLength));
  }
  async readTensor(tensor, into) {
    if (!into) return tensor.data.slice().buffer;
    const { buffer, byteOffset, byteLength } = ArrayBuffer.isView(into) ? into : new Uint8Array(into);
    new Uint8Array(buffer, byteOffset, byteLength).set(new Uint8Array(tensor.data.buffer));
  }
  dispatch(graph, inputs, outputs) {
    globalThis.dispatched = (globalThis.dispatched ?? 0) + 1;
    for (const [name, operand] of Object.entries(graph)) outputs[name].data.set(operand.compute(inputs));
  }
  destroy() {}
}
const isTransposed = (value) => value === true;
class Builder {
  operand(shape, compute) {
    return { shape, dataType: "float32", compute };
  }
  input(name, { shape, dimensions = shape }) {
    return this.operand(dimensions, (inputs) => inputs[name].data);
  }
  constant({ shape, dimensions = shape }, from) {
    const bytes = ArrayBuffer.isView(from) ? new Uint8Array(from.buffer, from.byteOffset, from.byteLength) : new Uint8Array(from);
    const data = new Float32Array(bytes.slice().buffer);
    return this.operand(dimensions, () => data);
  }
  gemm(a, b, { c, alpha = 1, beta = 1, aTranspose, bTranspose } = {}) {
    if (isTransposed(aTranspose)) throw new TypeError("this imitation transposes b only");
    globalThis.built.push("gemm");
    const [rows, depth] = a.shape;
    const columns = b.shape[isTransposed(bTranspose) ? 0 : 1];
    return this.operand([rows, columns], (inputs) => {
      const [left, right, added] = [a.compute(inputs), b.compute(inputs), c?.compute(inputs)];
      return Float32Array.from({ length: rows * columns }, (_, i) => {
        const [row, column] = [Math.floor(i / columns), i % columns];
        let sum = 0;
        for (let k = 0; k < depth; k++) {
          sum += left[row * depth + k] * right[isTransposed(bTranspose) ? column * depth + k : k * columns + column];
        }
        return alpha * sum + (added ? beta * added[added.length === columns ? column : i] : 0);
      });
    });
  }
  relu(x) {
    globalThis.built.push("relu");
    return this.operand(x.shape, (inputs) => x.compute(inputs).map((value) => Math.max(0, value)));
  }
  async build(outputs) {
    return outputs;
  }
}
globalThis.MLGraphBuilder = Builder;
globalThis.MLContext = Context;
globalThis.MLTensor = Tensor;
Object.defineProperty(navigator, "ml", { value: { createContext: async () => new Context() }, configurable: true });
