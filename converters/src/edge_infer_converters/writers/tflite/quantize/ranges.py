"""The range of every tensor over calibration data: LiteRT runs the float file and keeps all values."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.ranges import Histogram
from edge_infer_converters.writers.tflite import flatbuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edge_infer_converters.writers.tflite.graph import Graph, Tensor

    #: The least and the greatest value of each tensor, by `id`.
    Ranges = dict[int, tuple[float, float]]


def measure(
    graph: Graph,
    calls: Sequence[Mapping[str, np.ndarray]],
    method: str = "minmax",
    see: Callable[[Tensor, np.ndarray], None] | None = None,
) -> Ranges:
    """Find the range of each float tensor that operators give; values that are not finite are left out.

    A moving average of each call's range, as TensorFlow's tools take it, clips what is rare: 13 dB instead of 32 dB on
    the digits net.

    Args:
        graph: A float graph.
        calls: Inputs for single calls, by name.
        method: How, one of `passes.ranges.METHODS`: `minmax` finds the true ranges.
        see: Called with each of these tensors and its value, once for each call.

    Raises:
        ConversionError: LiteRT does not run the graph.
    """
    wanted = [one for one in flatbuffer.numbered(graph) if one.data is None and one.dtype == np.float32]
    ranges: Ranges = {}
    for tensor, value in observe(graph, calls, wanted):
        _widen(ranges, id(tensor), value)
        if see is not None:
            see(tensor, value)
    if method == "minmax":
        return ranges
    counted = {key: Histogram(min(low, 0.0), max(high, 0.0)) for key, (low, high) in ranges.items()}
    for tensor, value in observe(graph, calls, wanted):
        if id(tensor) in counted:
            counted[id(tensor)].add(value[np.isfinite(value)])
    found = {key: one.percentile() if method == "percentile" else one.least_error() for key, one in counted.items()}
    return {key: (one.low, one.high) for key, one in found.items()}


def observe(
    graph: Graph, calls: Iterable[Mapping[str, np.ndarray]], wanted: Sequence[Tensor]
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Run a float graph and yield, for each call, what it computes for some of its tensors.

    Args:
        graph: A float graph.
        calls: Inputs for single calls, by name.
        wanted: Tensors of the graph that are not constant.

    Raises:
        ConversionError: LiteRT does not run the graph.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    places = {id(tensor): i for i, tensor in enumerate(flatbuffer.numbered(graph))}
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
            for tensor in wanted:
                yield tensor, interpreter.get_tensor(places[id(tensor)])
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConversionError(f"The model cannot be calibrated: {' '.join(str(error).split())}") from error


def _widen(ranges: Ranges, key: int, values: np.ndarray) -> None:
    if not values.size:
        return
    low, high = float(values.min()), float(values.max())
    if not (isfinite(low) and isfinite(high)):  # a NaN is the least and the greatest
        finite = values[np.isfinite(values)]
        if not finite.size:
            return
        low, high = float(finite.min()), float(finite.max())
    if key in ranges:
        low, high = min(low, ranges[key][0]), max(high, ranges[key][1])
    ranges[key] = (low, high)
