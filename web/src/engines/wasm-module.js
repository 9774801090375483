/**
 * Compile WebAssembly, also where Firefox would wait for ever.
 *
 * Firefox compiles off the caller's thread on few threads, on two processors one. A stream keeps its thread until its last byte:
 * meanwhile nothing else of the site is compiled, and the thread is never free again where the page is left by then, as
 * Firefox keeps such a page, and its stream, for the way back. So a worker of Firefox compiles whole files, on its own thread,
 * which takes two thirds of the time.
 */

const isFirefox = /\bFirefox\//.test(globalThis.navigator?.userAgent ?? "");
const isWorker = "WorkerGlobalScope" in globalThis;

/**
 * @param {BufferSource} bytes
 * @returns {Promise<WebAssembly.Module>}
 * @throws {WebAssembly.CompileError} They are no module, or the page's policy allows none.
 */
export async function compileBytes(bytes) {
  return isFirefox && isWorker ? new WebAssembly.Module(bytes) : WebAssembly.compile(bytes);
}

/**
 * @param {Response} response Of the type `application/wasm`.
 * @returns {Promise<WebAssembly.Module>}
 * @throws {WebAssembly.CompileError} As `compileBytes` does.
 */
export async function compileResponse(response) {
  return isFirefox ? compileBytes(await response.arrayBuffer()) : WebAssembly.compileStreaming(response);
}
