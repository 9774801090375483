"""QUANTIZE and DEQUANTIZE: from floats to integers with a scale, between scales, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.onnx.rules.reading import tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def convert(operator: Operator, graph: Graph) -> None:
    """Half precision is stored as it is, and cast."""
    given, output = tensor(operator, 0), operator.outputs[0]
    if given.data is not None and given.quantization is not None and output.quantization is None:
        graph.give(output, graph.unpacked(given))
        return
    first = graph.prefers_first(given)
    value = graph.real(given, first=first)
    if given.dtype == "float16":
        value = graph.node("Cast", [value], to=1)
    graph.give(output, value, first=first)


RULES = {"QUANTIZE": convert, "DEQUANTIZE": convert}
