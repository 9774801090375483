"""Dynamic-range operators: beside weights of integers TFLite rounds values of floats to 8 bits at run time.

The arithmetic is that of PortableSymmetricQuantizeFloats and PortableAsymmetricQuantizeFloats in
tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.writers.onnx.rules.reading import option, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

_LEAST_STEP = 1e-30


def rounded(operator: Operator, graph: Graph, value: str, *axes: int, is_window: bool = False) -> str:
    """Round values to 8 bits where the weights are integers and the values are not; else return them as they are.

    Args:
        operator: Its first input are the values, its second the weights.
        graph: Where nodes are added.
        value: The values.
        axes: The axes that share a scale.
        is_window: Whether scales for channels of the weights always give the values a zero point, as in convolutions.
    """
    weights, given = tensor(operator, 1), tensor(operator, 0)
    if weights.data is None or weights.dtype != np.int8 or weights.quantization is None or given.dtype != np.float32:
        return value

    def number(one: float) -> str:
        return graph.constant(np.array(one, np.float32))

    places = graph.integers(*axes)
    has_zero = option(operator, "asymmetricQuantizeInputs", default=False)
    if not has_zero and not (is_window and len(weights.quantization.scales) > 1):
        largest = graph.node("ReduceMax", [graph.node("Abs", [value]), places], keepdims=1)
        step = graph.node("Max", [graph.node("Div", [largest, number(127)]), number(_LEAST_STEP)])
        return str(graph.node("Mul", [graph.node("Round", [graph.node("Div", [value, step])]), step]))
    low = graph.node("Min", [graph.node("ReduceMin", [value, places], keepdims=1), number(0)])
    high = graph.node("Max", [graph.node("ReduceMax", [value, places], keepdims=1), number(0)])
    width = graph.node("Div", [graph.node("Sub", [high, low]), number(255)])
    step = graph.node("Max", [width, number(_LEAST_STEP)])
    zero = graph.node("Round", [graph.node("Sub", [number(-128), graph.node("Div", [low, step])])])
    moved = graph.node("Add", [graph.node("Round", [graph.node("Div", [value, step])]), zero])
    kept = graph.node("Clip", [moved, number(-128), number(127)])
    return str(graph.node("Mul", [graph.node("Sub", [kept, zero]), step]))
