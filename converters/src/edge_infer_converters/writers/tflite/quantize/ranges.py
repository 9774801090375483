"""The range of every tensor over calibration data: LiteRT runs the float file and keeps all values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.writers.tflite import flatbuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edge_infer_converters.writers.tflite.graph import Graph

    #: The least and the greatest value of each tensor, by `id`.
    Ranges = dict[int, tuple[float, float]]


def measure(graph: Graph, calls: Iterable[Mapping[str, np.ndarray]]) -> Ranges:
    """Find the true range of each float tensor that operators give; values that are not finite are left out.

    A moving average of each call's range, as TensorFlow's tools take it, clips what is rare: 13 dB instead of 32 dB on
    the digits net.

    Args:
        graph: A float graph.
        calls: Inputs for single calls, by name.

    Raises:
        ConversionError: LiteRT does not run the graph.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    tensors = flatbuffer.numbered(graph)
    wanted = [i for i, tensor in enumerate(tensors) if tensor.data is None and tensor.dtype == np.float32]
    ranges: Ranges = {}
    try:
        # An accelerator would keep the values between operators to itself.
        interpreter = Interpreter(
            model_content=flatbuffer.write(graph, "calibration"),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        shapes: dict[str, tuple[int, ...]] = {}
        for call in calls:
            new = {name: array.shape for name, array in call.items()}
            if new != shapes:
                for i, tensor in enumerate(graph.inputs):
                    interpreter.resize_tensor_input(i, call[tensor.name].shape)
                interpreter.allocate_tensors()
                shapes = new
            for i, tensor in enumerate(graph.inputs):
                interpreter.set_tensor(i, call[tensor.name])
            interpreter.invoke()
            for i in wanted:
                _widen(ranges, id(tensors[i]), interpreter.get_tensor(i))
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConversionError(f"The model cannot be calibrated: {' '.join(str(error).split())}") from error
    return ranges


def _widen(ranges: Ranges, key: int, values: np.ndarray) -> None:
    finite = values[np.isfinite(values)] if not np.isfinite(values).all() else values
    if not finite.size:
        return
    low, high = float(finite.min()), float(finite.max())
    if key in ranges:
        low, high = min(low, ranges[key][0]), max(high, ranges[key][1])
    ranges[key] = (low, high)
