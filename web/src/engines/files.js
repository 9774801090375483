/** Name the files that an engine fetches, with their sizes in the pinned versions. */

/** @typedef {{url: string, bytes: number}} EngineFile */

/**
 * @param {import("../bundle/measured.js").EngineName} engine
 * @param {"wasm" | "webgpu" | "webnn"} device
 * @param {string} root The URL under which `vendor/` lies.
 * @returns {Promise<EngineFile[]>} Those that are of some size.
 */
export async function filesFor(engine, device, root) {
  /** @type {[folder: string, name: string, bytes: number][]} */
  let files = [];
  if (engine === "ort" && device !== "wasm") {
    const { module, bytes } = (await import("./ort-webgpu.js")).buildOfThisBrowser();
    files = [["onnxruntime-web", `${module}.wasm`, bytes]];
  } else if (engine === "ort") {
    files = [["onnxruntime-web", "ort-wasm-simd-threaded.wasm", (await import("./ort.js")).ORT_WASM_BYTES]];
  } else if (engine === "litert" && device === "webgpu") {
    files = [["litert", "litert_wasm_jspi_internal.wasm", (await import("./litert-webgpu.js")).LITERT_GPU_BYTES]];
  } else if (engine === "litert") {
    const { build, bytes } = (await import("./litert.js")).buildOfThisBrowser();
    files = [["litert", `${build}.wasm`, bytes]];
  }
  return files.map(([folder, name, bytes]) => ({ url: new URL(`vendor/${folder}/${name}`, root).href, bytes }));
}
