"""Run one ONNX or TFLite model file in the browser, on a Raspberry Pi and on CUDA, with the same numbers.

import edge_infer

session = edge_infer.load("digits.bundle")
result = session.run({"image": image})
print(result["logits"].argmax())
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_infer.backends.onnxruntime_options import OnnxRuntimeOptions
    from edge_infer.bundle import Bundle
    from edge_infer.dtypes import DType
    from edge_infer.errors import (
        BackendError,
        BackendUnavailable,
        BundleError,
        CudaUnavailable,
        DeviceLost,
        EdgeInferError,
        ExecutionError,
        InputError,
        IntegrityError,
        ManifestError,
        OutOfMemory,
        UnsupportedError,
        UnsupportedModel,
    )
    from edge_infer.loading import load, load_async
    from edge_infer.manifest import Manifest, Variant
    from edge_infer.session import PreparedCall, Report, Session, Stream
    from edge_infer.tensors import Tensor, TensorSpec
    from edge_infer.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BackendUnavailable",
    "Bundle",
    "BundleError",
    "CudaUnavailable",
    "DType",
    "DeviceLost",
    "EdgeInferError",
    "ExecutionError",
    "InputError",
    "IntegrityError",
    "Manifest",
    "ManifestError",
    "OnnxRuntimeOptions",
    "OutOfMemory",
    "PreparedCall",
    "Report",
    "Session",
    "Stream",
    "Tensor",
    "TensorSpec",
    "UnsupportedError",
    "UnsupportedModel",
    "Variant",
    "load",
    "load_async",
    "tune",
]

# Where each of the names is. A module is imported when one of its names is first asked for: `load` begins the start of
# the engine before it needs most of them.
_PLACES = {
    "Bundle": "bundle",
    "DType": "dtypes",
    "Manifest": "manifest",
    "OnnxRuntimeOptions": "backends.onnxruntime_options",
    "PreparedCall": "session",
    "Report": "session",
    "Session": "session",
    "Stream": "session",
    "Tensor": "tensors",
    "TensorSpec": "tensors",
    "Variant": "manifest",
    "load": "loading",
    "load_async": "loading",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edge_infer' has no attribute {name!r}")
    module = f"edge_infer.{_PLACES.get(name, 'errors')}"
    found = globals()[name] = getattr(__import__(module, fromlist=[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
