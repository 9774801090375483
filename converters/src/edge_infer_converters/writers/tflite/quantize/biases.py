"""Take out of biases by how much weights in int8 shift the mean of what an operator gives.

As `passes.correct_biases` does for ONNX, which says why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.passes.input_sums import InputSums, Layer, Window
from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor
from edge_infer_converters.writers.tflite.quantize import encodings
from edge_infer_converters.writers.tflite.quantize.regions import in_integers
from edge_infer_converters.writers.tflite.quantize.weights import WEIGHTS

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

# Their outputs have the channels last, and their bias is the third input.
_CORRECTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


class Biases:
    """The biases of a graph, which learn from the values that operators with weights read.

    Args:
        graph: A float graph.
        scheme: Which integers it will be written in.
    """

    def __init__(self, graph: Graph, scheme: Scheme) -> None:
        chosen = in_integers(graph, scheme)
        self._graph = graph
        self._layers = {id(one): _layer(one) for one in graph.operators if id(one) in chosen and one.code in _CORRECTED}
        self._sums = InputSums(self._layers.values())

    def see(self, tensor: Tensor, value: np.ndarray) -> None:
        """Learn from the value of a tensor in one call."""
        self._sums.add(id(tensor), value)

    def corrected(self) -> Graph:
        """Return a copy of the graph whose biases expect that its weights will be rounded to int8."""
        shifts = dict(zip(self._layers, self._sums.shifts(list(self._layers.values())), strict=True))
        made = replace(self._graph, operators=[])
        for operator in self._graph.operators:
            shift = shifts.get(id(operator))
            made.operators.append(operator if shift is None or not shift.any() else _corrected(operator, shift))
        return made


def _layer(operator: Operator) -> Layer:
    value, weights = operator.inputs[:2]
    if value is None or weights is None or weights.data is None:
        raise AssertionError("operators in integers have constant weights")
    _, axis = WEIGHTS[operator.code]
    rounded = encodings.int8(weights.data, axis)
    scales = rounded.scales.reshape([-1 if i == axis else 1 for i in range(weights.rank)])
    errors = rounded.values * scales - weights.data
    if operator.code == "FULLY_CONNECTED":
        return Layer(id(value), errors)
    if operator.code == "DEPTHWISE_CONV_2D":  # a group for each channel
        errors = errors.transpose(3, 1, 2, 0)
    options: object = operator.options
    height, width = ("strideH", "dilationHFactor"), ("strideW", "dilationWFactor")
    strides, dilations = (tuple(int(getattr(options, side[i])) for side in (height, width)) for i in range(2))
    is_padded = getattr(options, "padding") == schema.Padding.SAME  # noqa: B009  untyped schema
    window = Window(errors.shape[1:3], strides, dilations, "upper" if is_padded else ((0, 0), (0, 0)))
    return Layer(id(value), errors, window)


def _corrected(operator: Operator, shift: np.ndarray) -> Operator:
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    before = np.zeros(shift.shape) if bias is None or bias.data is None else bias.data
    name = operator.outputs[0].name if bias is None else bias.name
    data = (before - shift).astype(np.float32)
    added = Tensor(f"{name}/corrected", data.shape, data.shape, data.dtype, data)
    return replace(operator, inputs=[*operator.inputs[:2], added])
