"""Run a file on ONNX Runtime as a user would: with all optimisations, on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnxruntime


def fast_session(
    model: bytes | str, *, precise: bool = True, settings: Mapping[str, str] | None = None
) -> onnxruntime.InferenceSession:
    """Load a model.

    Args:
        model: The `.onnx` file, by its bytes or path.
        precise: Whether int8 sums are exact on x86 CPUs without VNNI too.
        settings: More of the engine's configuration.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", str(int(precise)))
    for name, value in (settings or {}).items():
        options.add_session_config_entry(name, value)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
