/** All modules in one file, which is also each of its workers and each thread of its engine. */

// @ts-expect-error  it has no types
import ort from "onnxruntime-web/ort-wasm-simd-threaded.mjs";

import { oneFile } from "../src/fetch/root.js";

export * from "../src/index.js";

const [address, worker] = import.meta.url.split("#edge-infer/");
Object.assign(oneFile, { address, ort });

// No `await` here: a service worker allows none.
if (worker === "worker.js") void import("../src/page/worker.js");
else if (worker === "python-worker.js") void import("../src/page/python-worker.js");
else if (worker === "generation-worker.js") void import("../src/page/generation-worker.js");
else if (worker === "decoder-worker.js") void import("../src/page/decoder-worker.js");
