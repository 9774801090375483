"""Run a file on its engine as a user would: with all optimisations, on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnxruntime


def fast_session(
    model: bytes | str, *, precise: bool = True, settings: Mapping[str, str] | None = None
) -> onnxruntime.InferenceSession:
    """Load a model into ONNX Runtime.

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


def run_tflite(data: bytes, calls: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Run a file on LiteRT.

    Raises:
        ConversionError: LiteRT cannot load or run it.
    """
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(model_content=data, num_threads=1)
        runner = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        return [{name: value.copy() for name, value in runner(**call).items()} for call in calls]
    except (RuntimeError, ValueError) as error:
        raise ConversionError(f"LiteRT does not run a trial: {' '.join(str(error).split())}") from error
