// The sides of benchmarks/browser.py that are JavaScript. Served at /bench/browser.js, onnxruntime-web's own package
// at /peer/. Imported by the page and by its worker.

const sides = new Map();

async function median(count, run) {
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await run();
    times.push(performance.now() - start);
  }
  return times.sort((one, other) => one - other)[count >> 1];
}

// A clock of 5 to 100 us cannot time one short call: `batch` calls are timed together.
function timer(call, batch) {
  return async (count) => {
    const time = await median(Math.max(3, Math.round(count / batch)), async () => {
      for (let i = 0; i < batch; i++) await call();
    });
    return time / batch;
  };
}

function syncTimer(call, batch) {
  return async (count) => {
    const time = await median(Math.max(3, Math.round(count / batch)), async () => {
      for (let i = 0; i < batch; i++) call();
    });
    return time / batch;
  };
}

async function bytesOf(url) {
  return new Uint8Array(await (await fetch(url)).arrayBuffer());
}

async function peer(url, feeds, { proxy }) {
  const ort = await import("/peer/ort.wasm.bundle.min.mjs");
  Object.assign(ort.env.wasm, { numThreads: 1, proxy, wasmPaths: "/peer/" });
  const session = await ort.InferenceSession.create(await bytesOf(url), { executionProviders: ["wasm"] });
  return async () => {
    const inputs = {};
    for (const [name, shape] of Object.entries(feeds)) {
      // The proxy takes the array away from its caller, who therefore gives it a copy; our session copies by itself.
      inputs[name] = new ort.Tensor("float32", proxy ? filled(shape).slice() : filled(shape), shape);
    }
    return session.run(inputs);
  };
}

const values = new Map();

/** The same values for all sides. */
function filled(shape) {
  const key = shape.join();
  if (!values.has(key)) {
    const size = shape.reduce((product, dim) => product * dim, 1);
    values.set(key, Float32Array.from({ length: size }, (_, i) => (i % 251) / 251));
  }
  return values.get(key);
}

/** Make the sides of the thread that Python and the engine live in. */
export async function openWorkerSides(name, url, feeds, batch) {
  const theirs = await peer(url, feeds, { proxy: false });
  sides.set(`${name}/peer`, timer(theirs, batch));
  const session = globalThis.edgeInferOrtEngine.createSession(await bytesOf(url));
  const inputs = Object.fromEntries(Object.entries(feeds).map(([input, shape]) => [input, { data: filled(shape), shape }]));
  sides.set(`${name}/engine`, syncTimer(() => session.run(inputs), batch));
  const output = session.outputs[0].name;
  const [expected, got] = [(await theirs())[output].data, session.run(inputs)[output].data];
  return expected.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i])), 0);
}

/** Make the sides of the page: both engines in workers of their own. */
export async function openPageSides(name, url, feeds, batch) {
  const theirs = await peer(url, feeds, { proxy: true });
  sides.set(`${name}/proxy`, timer(theirs, batch));
  const { load } = await import("/src/index.js");
  const session = await load(url, { threads: 1 });
  const inputs = Object.fromEntries(Object.entries(feeds).map(([input, shape]) => [input, { data: filled(shape), shape }]));
  sides.set(`${name}/session`, timer(() => session.run(inputs), batch));
}

/** @returns {Promise<number>} The median time of a call, in ms. */
export function sample(side, count) {
  return sides.get(side)(count);
}
