"""Typed options of ONNX Runtime: execution providers and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

#: Our names of execution providers: ONNX Runtime's own, the device each runs on, and the package that brings it.
PROVIDERS = {
    "cpu": ("CPUExecutionProvider", "cpu", "onnxruntime"),
    "cuda": ("CUDAExecutionProvider", "cuda", "onnxruntime-gpu"),
    "tensorrt": ("TensorrtExecutionProvider", "cuda", "onnxruntime-gpu"),
    "openvino": ("OpenVINOExecutionProvider", "cpu", "onnxruntime-openvino"),
    "xnnpack": ("XnnpackExecutionProvider", "cpu", "an onnxruntime built with XNNPACK"),
    "coreml": ("CoreMLExecutionProvider", "cpu", "onnxruntime, on macOS"),
}
# The providers that a setting belongs to, that which a hint names first; `tf32=False` is also the default.
_BELONGS_TO = {
    "memory_limit_mb": ("cuda",),
    "tf32": ("cuda",),
    "cudnn_search": ("cuda",),
    "cuda_graph": ("cuda",),
    "stream": ("cuda", "tensorrt"),
    "engine_cache": ("tensorrt",),
    "fp16": ("tensorrt",),
    "shared_arena": ("cuda", "cpu"),
}
_CUDNN_SEARCH = ("exhaustive", "heuristic", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntimeOptions:
    """Settings of ONNX Runtime, for `load(..., options=...)`; what is None stays the engine's default.

    Attributes:
        provider: One of `PROVIDERS`; None for the device's own.
        intra_op_threads: The threads that one operator may use.
        memory_limit_mb: The most device memory that the session's arena takes, in MiB (CUDA); with `shared_arena` the
            most of all who share it (CUDA, CPU).
        shared_arena: Whether the session takes its memory from the one arena of its device that all sessions of this
            process with this setting share, instead of keeping an arena of its own (CUDA, CPU).
        tf32: Whether float32 products may be computed in TensorFloat-32, with 10 bits of mantissa (CUDA). ONNX Runtime
            allows it unasked; here it must be asked for, so that float32 gives the same numbers everywhere.
        cudnn_search: How cuDNN chooses its convolutions: `exhaustive`, `heuristic` or `default` (CUDA).
        cuda_graph: Whether prepared calls capture the run once and replay it (CUDA; all nodes on the GPU).
        stream: The address of the caller's CUDA stream, to run on it (`torch.cuda.current_stream().cuda_stream`).
        engine_cache: The folder where TensorRT keeps the engines that it has built.
        fp16: Whether TensorRT may compute in float16.
        provider_settings: More settings of the provider, as ONNX Runtime spells them.
        session_settings: More entries of the session's configuration, as ONNX Runtime spells them.

    Raises:
        InputError: A setting is not one of its choices, or belongs to another provider.

    >>> OnnxRuntimeOptions(provider="cuda", memory_limit_mb=512).settings()["provider.gpu_mem_limit"]
    '536870912'
    """

    provider: str | None = None
    intra_op_threads: int | None = None
    memory_limit_mb: int | None = None
    shared_arena: bool = False
    tf32: bool | None = None
    cudnn_search: str | None = None
    cuda_graph: bool = False
    stream: int | None = None
    engine_cache: str | os.PathLike[str] | None = None
    fp16: bool | None = None
    provider_settings: Mapping[str, str] = field(default_factory=dict)
    session_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = list(PROVIDERS)
        if self.provider is not None and self.provider not in PROVIDERS:
            raise InputError(
                f"Provider `{self.provider}` is not known; choose from {listed(names)}",
                hint=did_you_mean(self.provider, names),
                allowed=names,
            )
        if self.cudnn_search is not None and self.cudnn_search not in _CUDNN_SEARCH:
            raise InputError(
                f"`cudnn_search` is `{self.cudnn_search}`; choose from {listed(list(_CUDNN_SEARCH))}",
                allowed=list(_CUDNN_SEARCH),
            )
        for name in ("intra_op_threads", "memory_limit_mb"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InputError(f"`{name}` is {number}, expected 1 or more", got=number)
        for name, providers in _BELONGS_TO.items():
            if name == "memory_limit_mb" and self.shared_arena:
                continue
            if getattr(self, name) not in (None, False) and self.provider not in providers:
                raise InputError(
                    f"`{name}` is a setting of the provider {' or '.join(f'`{one}`' for one in providers)}",
                    hint=f'OnnxRuntimeOptions(provider="{providers[0]}", {name}=...)',
                )

    @property
    def backend(self) -> str:
        """The backend that these are for."""
        return "onnxruntime"

    @property
    def device(self) -> str | None:
        """The device that the provider runs on; None where it is not said."""
        return None if self.provider is None else PROVIDERS[self.provider][1]

    def settings(self) -> dict[str, str]:
        """Return what `Backend.prepare` takes: the session's entries as `user.KEY`, the provider's `provider.KEY`."""
        found = {f"user.{key}": value for key, value in self.session_settings.items()}
        found.update({f"provider.{key}": value for key, value in self.provider_settings.items()})
        if self.provider is not None:
            found["provider"] = self.provider
        if self.intra_op_threads is not None:
            found["intra_op_threads"] = str(self.intra_op_threads)
        if self.shared_arena:
            found["arena"] = str((self.memory_limit_mb or 0) * 2**20)
        elif self.memory_limit_mb is not None:
            found["provider.gpu_mem_limit"] = str(self.memory_limit_mb * 2**20)
        if self.tf32 is not None:
            found["provider.use_tf32"] = str(int(self.tf32))
        if self.cudnn_search is not None:
            found["provider.cudnn_conv_algo_search"] = self.cudnn_search.upper()
        if self.cuda_graph:
            found["provider.enable_cuda_graph"] = "1"
        if self.stream is not None:
            found["provider.has_user_compute_stream"] = "1"
            found["provider.user_compute_stream"] = str(self.stream)
        if self.engine_cache is not None:
            found["provider.trt_engine_cache_enable"] = "1"
            found["provider.trt_engine_cache_path"] = str(self.engine_cache)
        if self.fp16 is not None:
            found["provider.trt_fp16_enable"] = str(int(self.fp16))
        return found
