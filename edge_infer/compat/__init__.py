"""Unmodified `onnxruntime` scripts in Pyodide.

    import edge_infer.compat
    edge_infer.compat.install()
    import onnxruntime as ort          # in the page: over the engine of the page; elsewhere: the one that is installed

The names, the results and the error texts are those of the native package; what cannot work in a page raises a
NotImplementedError that says why. It has no copy of onnxruntime: a session here is a session of `ort-web`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from edge_infer.platform import in_browser

__all__ = ["install", "start"]

# Module names of the native package, and what stands in for each.
_MODULES = {
    "onnxruntime": "edge_infer.compat.onnxruntime",
    "onnxruntime.capi": "edge_infer.compat.onnxruntime",
    "onnxruntime.capi._pybind_state": "edge_infer.compat.onnxruntime",
    "onnxruntime.capi.onnxruntime_inference_collection": "edge_infer.compat.onnxruntime",
    "onnxruntime.capi.onnxruntime_pybind11_state": "edge_infer.compat.ort_errors",
}


def install() -> list[str]:
    """Make `import onnxruntime` work in Pyodide. A second call does nothing.

    Returns:
        The names of the modules that were put in place: none outside Pyodide, and none where an `onnxruntime` is
        installed already.
    """
    if not in_browser() or "onnxruntime" in sys.modules or find_spec("onnxruntime") is not None:
        return []
    for name, source in _MODULES.items():
        sys.modules[name] = import_module(source)
    return list(_MODULES)


async def start() -> None:
    """Start the page's engine where nobody has, so that `InferenceSession(...)` is synchronous from then on.

    `startPython` of the npm package has done so already; in a notebook write `await edge_infer.compat.start()` once.

    Raises:
        BackendUnavailable: This is no page, or the engine's files are missing or of another version.
    """
    from edge_infer.backends.ort_web import OrtWebBackend

    await OrtWebBackend().start()
