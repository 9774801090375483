"""FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.hybrid import rounded
from edge_infer_converters.writers.onnx.rules.reading import option, optional, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def fully_connected(operator: Operator, graph: Graph) -> None:
    """Rows of the input times weights [out, in]; beside weights of integers, rows of floats are rounded to 8 bits."""
    given, weights, output = tensor(operator, 0), tensor(operator, 1), operator.outputs[0]
    if option(operator, "weightsFormat"):
        raise UnsupportedModel("shuffled weights")
    if len(weights.shape) != 2:
        raise UnsupportedModel(f"weights of shape {list(weights.shape)}")
    rows = graph.real(given)
    if given.rank != 2 or given.shape[1] != weights.shape[1]:
        rows = graph.reshaped(rows, (-1, weights.shape[1]))
    rows = rounded(operator, graph, rows, 1)
    inputs = [rows, graph.weights(weights, (0, 1))]
    if (bias := optional(operator, 2)) is not None:
        inputs.append(graph.real(bias))
    result = graph.activated(graph.node("Gemm", inputs, transB=1), option(operator, "fusedActivationFunction"), output)
    if output.signature.count(-1) > 1:
        kept = graph.node("Slice", [graph.node("Shape", [graph.raw(given)]), graph.integers(0), graph.integers(-1)])
        shape = graph.node("Concat", [kept, graph.integers(weights.shape[0])], axis=0)
        result = graph.node("Reshape", [result, shape])
    elif output.rank != 2:
        free = output.signature if output.signature.count(-1) == 1 else (-1, *output.shape[1:])
        result = graph.reshaped(result, free)
    graph.give(output, result)


def batch_matmul(operator: Operator, graph: Graph) -> None:
    """Matrices of the last two axes, each of which may be transposed first; floats beside integers are rounded."""
    sides = []
    for place, name in enumerate(("adjX", "adjY")):
        one = tensor(operator, place)
        value = graph.real(one)
        if option(operator, name, default=False):
            order = (*range(one.rank - 2), one.rank - 1, one.rank - 2)
            value = graph.node("Transpose", [value], perm=order)
        sides.append(value)
    sides[0] = rounded(operator, graph, sides[0], -1)
    graph.give(operator.outputs[0], graph.node("MatMul", sides))


RULES = {"FULLY_CONNECTED": fully_connected, "BATCH_MATMUL": batch_matmul}
