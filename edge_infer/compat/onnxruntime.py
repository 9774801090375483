"""The module that `import onnxruntime` gives in a page; see `edge_infer.compat.install`."""

from __future__ import annotations

from typing import Any

from edge_infer.backends.web.ort import OrtWebBackend
from edge_infer.compat.ort_errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,  # noqa: A004  the native package's name
    RuntimeException,
    absent,
)
from edge_infer.compat.ort_options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from edge_infer.compat.ort_session import PROVIDER, InferenceSession, IOBinding
from edge_infer.compat.ort_values import NodeArg, OrtValue
from edge_infer.formats.onnx import ModelMetadata

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
]

SessionIOBinding = IOBinding


def get_available_providers() -> list[str]:
    """Return the one provider that the page's engine has."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Return the providers that this build knows."""
    return [PROVIDER]


def get_device() -> str:
    """Return what the build is for."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of onnxruntime-web; empty where the engine has not started."""
    return OrtWebBackend().version()


def get_build_info() -> str:
    """Tell what this is."""
    return f"onnxruntime-web {get_version_string()}, plain WebAssembly build, over edge_infer.compat"


def preload_dlls(*_: Any, **__: Any) -> None:
    """Do nothing, as natively without CUDA: there are no libraries to load."""


def disable_telemetry_events() -> None:
    """Do nothing: this sends none."""


_NO_GLOBALS = "the engine got its settings when it started"
_NOT_BUILT = "the engine was built without it"
LoraAdapter = absent("LoraAdapter", _NOT_BUILT)
ModelCompiler = absent("ModelCompiler", _NOT_BUILT)
OrtDevice = absent("OrtDevice", "there is one device, `cpu`")
OrtMemoryInfo = absent("OrtMemoryInfo", "there is one memory, the engine's")
SparseTensor = absent("SparseTensor", "sparse tensors cannot leave the engine")
create_and_register_allocator = absent("create_and_register_allocator", _NO_GLOBALS)
enable_telemetry_events = absent("enable_telemetry_events", "this sends none")
register_execution_provider_library = absent(
    "register_execution_provider_library", "WebAssembly loads no native libraries"
)
set_default_logger_severity = absent("set_default_logger_severity", f"{_NO_GLOBALS}; use SessionOptions")
set_default_logger_verbosity = absent("set_default_logger_verbosity", f"{_NO_GLOBALS}; use SessionOptions")
set_global_thread_pool_sizes = absent("set_global_thread_pool_sizes", _NO_GLOBALS)
set_seed = absent("set_seed", "the engine's interface has no such call")


def __getattr__(name: str) -> str:
    if name == "__version__":
        return get_version_string()
    raise AttributeError(f"module 'onnxruntime' has no attribute {name!r}")
