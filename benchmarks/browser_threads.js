// A worker of benchmarks/browser.py: onnxruntime-web's own API and our LiteRT.js engine in one thread of their own, each
// with the same number of threads inside. Served at /bench/browser_threads.js.

const sides = {};

async function bytesOf(url) {
  return new Uint8Array(await (await fetch(url)).arrayBuffer());
}

async function open({ onnx, tflite, threads, input, shape }) {
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => (i % 251) / 251);
  const ort = await import("/peer/ort.wasm.min.mjs");
  Object.assign(ort.env.wasm, { numThreads: threads, wasmPaths: "/vendor/onnxruntime-web/" });
  const theirs = await ort.InferenceSession.create(await bytesOf(onnx), { executionProviders: ["wasm"] });
  sides.peer = () => theirs.run({ [input]: new ort.Tensor("float32", values, shape) });

  const { startLiteRtEngine } = await import("/src/engines/litert.js");
  const engine = await startLiteRtEngine({ threads });
  const ours = engine.createSession(await bytesOf(tflite));
  sides.litert = async () => ours.run({ [input]: { data: values, shape } });

  const output = ours.outputs[0].name;
  const [expected, got] = [(await sides.peer())[output].data, (await sides.litert())[output].data];
  return expected.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i])), 0);
}

async function sample({ side, count }) {
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await sides[side]();
    times.push(performance.now() - start);
  }
  return times.sort((one, other) => one - other)[count >> 1];
}

self.onmessage = async ({ data }) => {
  try {
    self.postMessage({ value: await (data.side ? sample(data) : open(data)) });
  } catch (error) {
    self.postMessage({ error: String(error.stack ?? error) });
  }
};
