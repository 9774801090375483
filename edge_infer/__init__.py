"""Run one ONNX or TFLite model file in the browser, on a Raspberry Pi and on CUDA, with the same numbers.

import edge_infer

session = edge_infer.load("digits.bundle")
result = session.run({"image": image})
print(result["logits"].argmax())
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_infer.backends.litert.options import LiteRTOptions
    from edge_infer.backends.onnxruntime.options import OnnxRuntimeOptions
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.bundle.variant import Variant
    from edge_infer.chains.cache import StepCache
    from edge_infer.chains.chain import Chain, ChainRun, StepTiming
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
    from edge_infer.generation.completion import Completion
    from edge_infer.generation.generate import generate, generate_async
    from edge_infer.generation.generator import Generator
    from edge_infer.generation.text_stream import TextStream
    from edge_infer.monitor.counters import Counters
    from edge_infer.runtime.load import load, load_async
    from edge_infer.runtime.preflight import Preflight, check
    from edge_infer.runtime.prepared_call import PreparedCall
    from edge_infer.runtime.session import Report, Session
    from edge_infer.runtime.stream import Stream
    from edge_infer.runtime.tuning import tune
    from edge_infer.tasks.pipeline import Pipeline, pipeline, pipeline_async
    from edge_infer.tasks.tabular.expression import Expression, col
    from edge_infer.tasks.tabular.features import Features, fit_features
    from edge_infer.tasks.text.encoding import Encoding
    from edge_infer.tasks.text.length import Padding, Truncation
    from edge_infer.tasks.text.tokenizer import DecodeStream, Tokenizer
    from edge_infer.tensors.dtypes import DType
    from edge_infer.tensors.tensor import Tensor, TensorSpec
    from edge_infer.vectors.clusters import kmeans
    from edge_infer.vectors.hit import Hit
    from edge_infer.vectors.index import Index
    from edge_infer.vectors.mini_model import MiniModel
    from edge_infer.vectors.similarity import batch_normalize, cosine_similarity

__version__ = "0.1.0"

# From 1.29 on ONNX Runtime's own builds report to their maker as soon as the library is loaded, unless this forbids it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "BackendError",
    "BackendUnavailable",
    "Bundle",
    "BundleError",
    "Chain",
    "ChainRun",
    "Completion",
    "Counters",
    "CudaUnavailable",
    "DType",
    "DecodeStream",
    "DeviceLost",
    "EdgeInferError",
    "Encoding",
    "ExecutionError",
    "Expression",
    "Features",
    "Generator",
    "Hit",
    "Index",
    "InputError",
    "IntegrityError",
    "LiteRTOptions",
    "Manifest",
    "ManifestError",
    "MiniModel",
    "OnnxRuntimeOptions",
    "OutOfMemory",
    "Padding",
    "Pipeline",
    "Preflight",
    "PreparedCall",
    "Report",
    "Session",
    "StepCache",
    "StepTiming",
    "Stream",
    "Tensor",
    "TensorSpec",
    "TextStream",
    "Tokenizer",
    "Truncation",
    "UnsupportedError",
    "UnsupportedModel",
    "Variant",
    "batch_normalize",
    "check",
    "col",
    "cosine_similarity",
    "fit_features",
    "generate",
    "generate_async",
    "kmeans",
    "load",
    "load_async",
    "pipeline",
    "pipeline_async",
    "tune",
]

# Where each of the names is. A module is imported when one of its names is first asked for: `load` begins the start of
# the engine before it needs most of them.
_PLACES = {
    "Bundle": "bundle.bundle",
    "Chain": "chains.chain",
    "ChainRun": "chains.chain",
    "Completion": "generation.completion",
    "Counters": "monitor.counters",
    "DType": "tensors.dtypes",
    "DecodeStream": "tasks.text.tokenizer",
    "Encoding": "tasks.text.encoding",
    "Expression": "tasks.tabular.expression",
    "Features": "tasks.tabular.features",
    "Generator": "generation.generator",
    "Hit": "vectors.hit",
    "Index": "vectors.index",
    "LiteRTOptions": "backends.litert.options",
    "Manifest": "bundle.manifest",
    "MiniModel": "vectors.mini_model",
    "OnnxRuntimeOptions": "backends.onnxruntime.options",
    "Padding": "tasks.text.length",
    "Pipeline": "tasks.pipeline",
    "Preflight": "runtime.preflight",
    "PreparedCall": "runtime.prepared_call",
    "Report": "runtime.session",
    "Session": "runtime.session",
    "StepCache": "chains.cache",
    "StepTiming": "chains.chain",
    "Stream": "runtime.stream",
    "Tensor": "tensors.tensor",
    "TensorSpec": "tensors.tensor",
    "TextStream": "generation.text_stream",
    "Tokenizer": "tasks.text.tokenizer",
    "Truncation": "tasks.text.length",
    "Variant": "bundle.variant",
    "generate": "generation.generate",
    "generate_async": "generation.generate",
    "batch_normalize": "vectors.similarity",
    "check": "runtime.preflight",
    "col": "tasks.tabular.expression",
    "cosine_similarity": "vectors.similarity",
    "fit_features": "tasks.tabular.features",
    "kmeans": "vectors.clusters",
    "load": "runtime.load",
    "load_async": "runtime.load",
    "pipeline": "tasks.pipeline",
    "pipeline_async": "tasks.pipeline",
    "tune": "runtime.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edge_infer' has no attribute {name!r}")
    module = f"edge_infer.{_PLACES.get(name, 'errors')}"
    try:
        found = globals()[name] = getattr(__import__(module, fromlist=[name]), name)
    except ModuleNotFoundError as error:
        if _PLACES.get(name, "").partition(".")[0] not in ("chains", "generation", "monitor", "tasks", "vectors"):
            raise
        from edge_infer.errors import UnsupportedError

        hint = "install the wheel of edge-infer in the page instead"
        raise UnsupportedError(f"`{name}` is not in the small archive of edge-infer for pages", hint=hint) from error
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
