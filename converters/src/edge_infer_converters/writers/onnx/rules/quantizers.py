"""QUANTIZE and DEQUANTIZE: from floats to integers with a scale, between scales, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def convert(operator: Operator, graph: Graph) -> None:
    """Half precision is stored as it is, and cast."""
    given, output = tensor(operator, 0), operator.outputs[0]
    if given.data is not None and given.quantization is not None and output.quantization is None:
        graph.give(output, graph.unpacked(given))
        return
    if output.quantization is not None and output.dtype in (np.int32, np.int64):
        _widen(given, output, graph)
        return
    first = graph.prefers_first(given)
    value = graph.real(given, first=first)
    if given.dtype == "float16":
        value = graph.node("Cast", [value], to=1)
    graph.give(output, value, first=first)


def _widen(given: Tensor, output: Tensor, graph: Graph) -> None:
    """Bring 16 bits to the scale of 32, in double precision: QuantizeLinear gives no more than 16."""
    sides = [one.quantization for one in (given, output)]
    old, new = (None if one is None or len(one.scales) != 1 else one for one in sides)
    if old is None or new is None or given.dtype != np.int16 or output.dtype != np.int32:
        raise UnsupportedModel(f"from {given.dtype} to {output.dtype}")
    value = graph.node("Cast", [graph.raw(given)], to=TensorProto.DOUBLE)
    factor = np.float64(old.scales[0]) / np.float64(new.scales[0])
    value = graph.node("Round", [graph.node("Mul", [value, graph.constant(np.array(factor))])])
    if new.zero_point:
        value = graph.node("Add", [value, graph.constant(np.array(new.zero_point, np.float64))])
    graph.give_raw(output, graph.node("Cast", [value], to=TensorProto.INT32))


RULES = {"QUANTIZE": convert, "DEQUANTIZE": convert}
