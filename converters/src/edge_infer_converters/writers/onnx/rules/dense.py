"""FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.hybrid import rounded
from edge_infer_converters.writers.onnx.rules.reading import option, optional, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


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
    left, right, output = tensor(operator, 0), tensor(operator, 1), operator.outputs[0]
    value = _turned(graph, left, graph.real(left), option(operator, "adjX", default=False))
    value = rounded(operator, graph, value, -1)
    is_turned = bool(option(operator, "adjY", default=False))
    is_stored = right.data is not None and right.quantization is not None and left.quantization is None
    matrix = graph.unpacked(right) if is_stored else graph.real(right)
    graph.give(output, graph.node("MatMul", [value, _turned(graph, right, matrix, is_turned)]))


def _turned(graph: Graph, one: Tensor, value: str, is_turned: bool) -> str:
    order = (*range(one.rank - 2), one.rank - 1, one.rank - 2)
    return str(graph.node("Transpose", [value], perm=order)) if is_turned else value


RULES = {"FULLY_CONNECTED": fully_connected, "BATCH_MATMUL": batch_matmul}
