"""Run one ONNX or TFLite model file in the browser, on a Raspberry Pi and on CUDA, with the same numbers.

import edge_infer

session = edge_infer.load("digits.bundle")
result = session.run({"image": image})
print(result["logits"].argmax())
"""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from edge_infer.backends.onnxruntime_options import OnnxRuntimeOptions
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


def __getattr__(name: str) -> Any:
    """Import what only few programs need when it is first asked for."""
    if name == "OnnxRuntimeOptions":
        from edge_infer.backends.onnxruntime_options import OnnxRuntimeOptions

        return OnnxRuntimeOptions
    if name == "tune":
        from edge_infer.tuning import tune

        return tune
    raise AttributeError(f"module 'edge_infer' has no attribute {name!r}")
