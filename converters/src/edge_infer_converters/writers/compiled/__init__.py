"""Compile a TFLite graph to one WebAssembly file: kernels, weights, and the calls between them."""

from __future__ import annotations

from importlib.resources import files


def page_files() -> dict[str, bytes]:
    """Return the ES module that runs a `model.wasm` beside it, and its types, by name."""
    folder = files(__name__) / "page"
    return {name: (folder / name).read_bytes() for name in ("model.js", "model.d.ts")}
