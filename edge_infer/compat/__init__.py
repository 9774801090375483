"""Unmodified `onnxruntime`, `tflite_runtime` and `ai_edge_litert` scripts in Pyodide.

    import edge_infer.compat
    edge_infer.compat.install()
    import onnxruntime as ort          # in the page: over the engine of the page; elsewhere: the one that is installed
    from tflite_runtime.interpreter import Interpreter      # or ai_edge_litert.interpreter

The names, the results and the error texts are those of the native package; what cannot work in a page raises a
NotImplementedError that says why. It has no copy of these packages: a session here is a session of `ort-web`,
an interpreter one of `litert-web`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from edge_infer.errors import InputError
from edge_infer.platform.host import in_browser

__all__ = ["install", "start"]

# Module names of the native packages, and what stands in for each.
_MODULES = {
    "onnxruntime": {
        "onnxruntime": "edge_infer.compat.onnxruntime",
        "onnxruntime.capi": "edge_infer.compat.onnxruntime",
        "onnxruntime.capi._pybind_state": "edge_infer.compat.onnxruntime",
        "onnxruntime.capi.onnxruntime_inference_collection": "edge_infer.compat.onnxruntime",
        "onnxruntime.capi.onnxruntime_pybind11_state": "edge_infer.compat.ort_errors",
    },
    "tflite_runtime": {
        "tflite_runtime": "edge_infer.compat.tflite",
        "tflite_runtime.interpreter": "edge_infer.compat.tflite",
    },
    "ai_edge_litert": {
        "ai_edge_litert": "edge_infer.compat.tflite",
        "ai_edge_litert.interpreter": "edge_infer.compat.tflite",
    },
}


def install() -> list[str]:
    """Make `import onnxruntime`, `tflite_runtime.interpreter` and `ai_edge_litert.interpreter` work in Pyodide.

    A second call does nothing.

    Returns:
        The names of the modules that were put in place: none outside Pyodide, and none of a package that is installed
        already.
    """
    if not in_browser():
        return []
    placed = []
    for package, modules in _MODULES.items():
        if package in sys.modules or find_spec(package) is not None:
            continue
        for name, source in modules.items():
            sys.modules[name] = import_module(source)
            parent, dot, child = name.rpartition(".")
            if dot:
                setattr(sys.modules[parent], child, sys.modules[name])  # what `import a.b` looks for
            placed.append(name)
    return placed


async def start(engine: str = "onnxruntime") -> None:
    """Start one of the page's engines where nobody has, so that loading a model is synchronous from then on.

    `loadPython` of the npm package has done so already for onnxruntime; in a notebook write
    `await edge_infer.compat.start()` once. For TFLite write `await edge_infer.compat.start("litert")`, there too unless
    it was told to start it.

    Args:
        engine: `onnxruntime` or `litert`.

    Raises:
        BackendUnavailable: This is not a page, or the engine's files are missing or of another version.
        InputError: There is no such engine.
    """
    if engine == "onnxruntime":
        from edge_infer.backends.web.ort import OrtWebBackend

        await OrtWebBackend().start()
    elif engine == "litert":
        from edge_infer.backends.web.litert import LiteRTWebBackend

        await LiteRTWebBackend().start()
    else:
        raise InputError(
            f"Engine `{engine}` is not known; choose from `onnxruntime` and `litert`", allowed=["onnxruntime", "litert"]
        )
