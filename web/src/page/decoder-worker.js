/** A thread of a decoder: it takes part in the batches until the decoder is closed. */

self.onmessage = (/** @type {MessageEvent<import("../generation/team.js").Joining>} */ { data: { module, memory, team, index, stack } }) => {
  const exports = /** @type {any} */ (new WebAssembly.Instance(module, { env: { memory } }).exports);
  // All instances share one memory: each needs a stack of its own in it.
  exports.__stack_pointer.value = stack;
  exports.decoder_join(team, index);
  self.close();
};
self.postMessage("ready");
