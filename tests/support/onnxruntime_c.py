"""The choice of ONNX Runtime's C interface in a process that has imported numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.backends.onnxruntime.backend import OnnxRuntimeBackend
from edge_infer.backends.onnxruntime.c import OrtCModel, load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


def take_c_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load every ONNX model by the C interface, although the tests have imported numpy."""

    def prepare(_: Any, model: Any, variant: Any, *, device: str, options: Mapping[str, str]) -> OrtCModel:
        return load_model(model, variant.file, options)

    monkeypatch.setattr(OnnxRuntimeBackend, "prepare", prepare)
