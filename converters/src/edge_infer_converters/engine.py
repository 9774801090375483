"""Run a file on ONNX Runtime as a user would: with all optimisations, on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime


def fast_session(model: bytes | str, *, precise: bool = True) -> onnxruntime.InferenceSession:
    """Load a model.

    Args:
        model: The `.onnx` file, by its bytes or path.
        precise: Whether int8 sums are exact on x86 CPUs without VNNI too.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", str(int(precise)))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
