"""The Fourier transform of real numbers. A complex number is a last axis of two: the real and the imaginary part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import constant, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def transform(operator: Operator, graph: Graph) -> None:
    """Over the last two axes; where the first of them has one row, over the last alone."""
    given, output = tensor(operator, 0), operator.outputs[0]
    rows, columns = (int(one) for one in constant(operator, 1).reshape(-1))
    if given.rank < 2 or given.signature[-2:] != (rows, columns):
        raise UnsupportedModel(f"a transform of {rows} x {columns} values of the shape {list(given.signature)}")
    value = graph.node("Unsqueeze", [graph.raw(given), graph.integers(-1)])
    has_batch = given.rank > 2
    if not has_batch:  # the first axis of DFT is a batch
        value = graph.node("Unsqueeze", [value, graph.integers(0)])
    last = given.rank - has_batch  # of the value without its parts
    value = graph.node("DFT", [value], axis=last, onesided=1)
    if rows > 1:
        value = graph.node("DFT", [value], axis=last - 1)
    graph.give_raw(output, value if has_batch else graph.node("Squeeze", [value, graph.integers(0)]))


def reshape(operator: Operator, graph: Graph) -> None:
    """The parts of a complex number stay together."""
    output = operator.outputs[0]
    graph.give_raw(output, graph.reshaped(graph.raw(tensor(operator, 0)), [*output.signature, 2]))


def magnitude(operator: Operator, graph: Graph) -> None:
    """The length of both parts."""
    value = graph.raw(tensor(operator, 0))
    graph.give(operator.outputs[0], graph.node("ReduceL2", [value, graph.integers(-1)], keepdims=0))


def part(operator: Operator, graph: Graph) -> None:
    """The real or the imaginary part."""
    place = graph.constant(np.array(0 if operator.code == "REAL" else 1, np.int64))
    graph.give(operator.outputs[0], graph.node("Gather", [graph.raw(tensor(operator, 0)), place], axis=-1))


RULES = {"RFFT2D": transform, "COMPLEX_ABS": magnitude, "REAL": part, "IMAG": part}
#: The operators that may read or give complex numbers; no other rule knows their last axis.
OF_COMPLEX = {**RULES, "RESHAPE": reshape, "SQUEEZE": reshape, "EXPAND_DIMS": reshape}
