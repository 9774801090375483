"""Load and run a model on its engine: with the usual optimisation, or without any as the reference."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from edge_infer.errors import ConversionError, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnxruntime


class _WeightsInFiles(Protocol):
    def give_to(self, options: onnxruntime.SessionOptions) -> list[object]:
        """Let a session read the tensors where they lie; return what must live as long as it."""


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


def make_session(
    model: bytes | str,
    name: str,
    *,
    optimised: bool = False,
    is_large: bool = False,
    in_files: _WeightsInFiles | None = None,
) -> onnxruntime.InferenceSession:
    """Load a model into ONNX Runtime with one thread and, unless asked for, no optimisation.

    Args:
        model: The `.onnx` file, by its bytes or path.
        name: What to call it in an error.
        optimised: Whether the engine may join and replace nodes.
        is_large: Whether to take little memory: weights are not packed, and no memory is kept between runs.
        in_files: The weights that the engine reads where they lie.

    Raises:
        UnsupportedModel: ONNX Runtime refuses it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.use_deterministic_compute = True
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    if is_large:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    kept = [] if in_files is None else in_files.give_to(options)
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's classes have no common base but this
        raise UnsupportedModel(
            f"ONNX Runtime cannot load `{name}`: {first_line(error)}", hint=hint_for(str(error)), model=name
        ) from error
    weakref.finalize(session, kept.clear)  # the engine reads the views until the session goes
    return session


def hint_for(text: str) -> str:
    """Return what to do about a message of ONNX Runtime, empty where nothing is known."""
    if "opset" in text.lower() or "ir_version" in text or "IR version" in text:
        return "export it with a lower opset, or pip install --upgrade onnx onnxruntime"
    if "No Op registered" in text or "not a registered function/op" in text:
        return "replace the operator, or export with a newer opset"
    return ""


def first_line(error: Exception) -> str:
    """Return the part of an engine's message that says something: no source paths, no stack."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text.rpartition("&) ")[2] if "&) " in text else text
