"""ONNX Runtime, natively: CPU and CUDA.

Where numpy is not imported a model on the CPU goes by the C interface (`c.py`), which needs neither numpy
nor the Python binding; elsewhere by the Python binding (`model.py`).
"""

from __future__ import annotations

import os
import sys

from edge_infer.backends.base import Availability, Backend
from edge_infer.errors import BackendUnavailable, UnsupportedModel
from edge_infer.platform.installed import installed_version, origin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from edge_infer.backends.base import Runnable
    from edge_infer.bundle.variant import Variant
    from edge_infer.errors import EdgeInferError

_SATURATES = (
    "integer kernels saturate on this CPU, and ONNX Runtime refuses the file in its precise mode: "
    "edge-infer convert MODEL writes one that it takes, or says why not"
)


class OnnxRuntimeBackend(Backend):
    """The adapter of the `onnxruntime` package."""

    name = "onnxruntime"
    formats = ("onnx",)
    is_exact = True
    takes_threads = True

    def availability(self) -> Availability:
        """Say whether `onnxruntime` is installed, and whether it brings CUDA; imports nothing."""
        if sys.platform == "emscripten":
            return Availability(False, reason="has no build for Pyodide; `ort-web` runs there")
        package = origin_of("onnxruntime")
        if package is None:
            from edge_infer.backends.onnxruntime.api import library_path

            if library_path() is not None:  # what `edge-infer slim` leaves of the package
                return Availability(True, ("cpu",))
            return Availability(False, reason="not installed", hint="pip install 'edge-infer[onnxruntime]'")
        libraries = os.path.join(os.path.dirname(package), "capi")
        if not os.path.isdir(libraries) or not any(
            "onnxruntime_providers_cuda" in name for name in os.listdir(libraries)
        ):
            return Availability(True, ("cpu",))
        from pathlib import Path

        from edge_infer.platform import cuda

        fault = cuda.why_not(Path(libraries))
        if fault is not None:
            return Availability(True, ("cpu",), f"no CUDA: {fault.message}", fault.hint)
        return Availability(True, ("cuda", "cpu"))

    def why_not(self, device: str) -> BackendUnavailable | None:
        """Tell why the device does not work here, and what to type; see `Backend.why_not`."""
        if device != "cuda":
            return None
        from pathlib import Path

        from edge_infer.platform import cuda

        package = origin_of("onnxruntime")
        return cuda.not_installed() if package is None else cuda.why_not(Path(package).parent / "capi")

    def version(self) -> str:
        """Return the version of ONNX Runtime."""
        number = installed_version("onnxruntime", "onnxruntime", "onnxruntime-gpu")
        if number or not self.availability().ready:
            return number
        from edge_infer.backends.onnxruntime.api import load_api

        return load_api().version

    def head_start(self, device: str) -> AbstractContextManager[None] | None:
        """See `Backend.head_start`: it is for models that the C interface will run."""
        if "numpy" in sys.modules or device not in ("auto", "cpu"):
            return None
        if device == "auto" and self.availability().devices != ("cpu",):
            return None
        from edge_infer.backends.onnxruntime.api import HeadStart

        return HeadStart()

    def prepare(self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> Runnable:
        """Load a model; see `Backend.prepare`. Products of integers do not saturate where the engine can avoid it."""
        from edge_infer.backends.onnxruntime.entries import with_precise

        precise = with_precise(options) if device == "cpu" else None
        if precise is None:
            return _loaded(model, variant, device, options)
        try:
            return _loaded(model, variant, device, precise)
        except UnsupportedModel:
            loaded = _loaded(model, variant, device, options)
        loaded.placement = loaded.placement._replace(fallbacks=(*loaded.placement.fallbacks, _SATURATES))
        return loaded


def _loaded(model: str | bytes, variant: Variant, device: str, options: Mapping[str, str]) -> Runnable:
    unfit: EdgeInferError | None = None
    is_plain = options.get("provider", "cpu") == "cpu" and "arena" not in options
    if device == "cpu" and is_plain and "numpy" not in sys.modules:
        from edge_infer.backends.onnxruntime.c import load_model

        try:
            return load_model(model, variant.file, options)
        except BackendUnavailable as error:  # the Python binding may work where the library does not
            unfit = error
    from edge_infer.backends.onnxruntime.model import OnnxRuntimeModel
    from edge_infer.backends.onnxruntime.session import open_session

    try:
        session, placement = open_session(model, variant.file, device=device, options=options)
    except BackendUnavailable as error:
        raise unfit or error from error
    index = int(device.partition(":")[2] or 0)
    return OnnxRuntimeModel(session, placement, index=index, has_graph="provider.enable_cuda_graph" in options)
