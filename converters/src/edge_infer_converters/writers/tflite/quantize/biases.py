"""Take out of biases by how much weights in int8 shift the mean of what an operator gives.

As `passes.correct_biases` does for ONNX: each operator is run on its float inputs by the rounding errors
of its weights alone. The caller compares: the mean of inputs that nobody learnt from may be another.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor
from edge_infer_converters.writers.tflite.quantize import encodings
from edge_infer_converters.writers.tflite.quantize.ranges import observe
from edge_infer_converters.writers.tflite.quantize.regions import in_integers
from edge_infer_converters.writers.tflite.quantize.weights import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

# Their outputs have the channels last, and their bias is the third input.
_CORRECTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def correct_biases(graph: Graph, calls: Iterable[Mapping[str, np.ndarray]], scheme: Scheme) -> Graph:
    """Return a copy of a float graph whose biases expect that its weights will be rounded to int8.

    Args:
        graph: A float graph; it is not changed, and the copy has its values.
        calls: Typical inputs for single calls.
        scheme: Which integers it will be written in.

    Raises:
        ConversionError: LiteRT does not run the graph.
    """
    chosen = in_integers(graph, scheme)
    twins = {id(one): _twin(one) for one in graph.operators if id(one) in chosen and one.code in _CORRECTED}
    shifts = _means(graph, list(twins.values()), calls)
    made = replace(graph, operators=[])
    for operator in graph.operators:
        shift = shifts.get(id(twins[id(operator)].outputs[0])) if id(operator) in twins else None
        is_shifted = shift is not None and np.isfinite(shift).all() and shift.any()
        made.operators.append(_corrected(operator, shift) if shift is not None and is_shifted else operator)
    return made


def _twin(operator: Operator) -> Operator:
    """Make an operator that gives what the rounding errors of another one's weights add to what that one gives."""
    value, weights = operator.inputs[:2]
    if weights is None or weights.data is None:
        raise AssertionError("operators in integers have constant weights")
    _, axis = WEIGHTS[operator.code]
    rounded = encodings.int8(weights.data, axis)
    scales = rounded.scales.reshape([-1 if i == axis else 1 for i in range(weights.rank)])
    error = (rounded.values * scales - weights.data).astype(np.float32)
    options = copy(operator.options)
    setattr(options, "fusedActivationFunction", schema.ActivationFunctionType.NONE)  # noqa: B010  untyped schema
    (output,) = operator.outputs
    none = np.zeros(output.shape[-1], np.float32)
    inputs = [value, _constant(f"{weights.name}/errors", error), _constant(f"{weights.name}/none", none)]
    return replace(operator, inputs=inputs, outputs=[replace(output, name=f"{output.name}/shift")], options=options)


def _means(graph: Graph, twins: list[Operator], calls: Iterable[Mapping[str, np.ndarray]]) -> dict[int, np.ndarray]:
    """Return the mean over calls of what each twin gives, by channel and the `id` of its output."""
    wanted = [twin.outputs[0] for twin in twins]
    # Each value that a twin reads is made by an operator of the graph: behind all of them there is all that it needs.
    opened = replace(graph, operators=[*graph.operators, *twins], outputs=[*graph.outputs, *wanted])
    sums: dict[int, np.ndarray] = {}
    counts: dict[int, int] = {}
    for tensor, value in observe(opened, calls, wanted):
        rows = value.reshape(-1, value.shape[-1]).astype(np.float64)
        sums[id(tensor)] = sums.get(id(tensor), 0) + rows.sum(axis=0)
        counts[id(tensor)] = counts.get(id(tensor), 0) + len(rows)
    return {key: total / max(counts[key], 1) for key, total in sums.items()}


def _corrected(operator: Operator, shift: np.ndarray) -> Operator:
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    before = np.zeros(shift.shape) if bias is None or bias.data is None else bias.data
    name = operator.outputs[0].name if bias is None else bias.name
    added = _constant(f"{name}/corrected", (before - shift).astype(np.float32))
    return replace(operator, inputs=[*operator.inputs[:2], added])


def _constant(name: str, data: np.ndarray) -> Tensor:
    return Tensor(name, data.shape, data.shape, data.dtype, data)
