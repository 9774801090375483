"""Compile a TFLite graph to one WebAssembly file: kernels, weights, and the calls between them."""
