"""FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.from_tflite.builder import Unsupported
from edge_infer_converters.writers.from_tflite.rules.convolution import bias
from edge_infer_converters.writers.from_tflite.rules.hybrid import is_hybrid, rounded
from edge_infer_converters.writers.from_tflite.rules.shape import sizes

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule

_MATRIX = 2


def fully_connected(node: Node) -> None:
    """Gemm with transposed weights, the leading axes joined; dynamic-range weights round each row of values."""
    if node.option("weightsFormat", 0):
        raise Unsupported("shuffled weights")
    weights = node.tensor(1)
    width = weights.shape[1]
    value, is_flat = node.tensor(0), True
    real = node.real(0)
    if value.rank != _MATRIX or value.shape[1] != width:
        real = node.add("Reshape", [real, node.builder.integers(-1, width)])
        is_flat = node.output.rank == _MATRIX
    if is_hybrid(node):
        real = rounded(node, real, 1)
    made = node.add("Gemm", [real, node.builder.weight(weights), *bias(node, 2)], transB=1)
    if not is_flat:
        made = node.add("Reshape", [made, node.builder.integers(*sizes(node.output))])
    node.give_real(made)


def batch_matmul(node: Node) -> None:
    """MatMul; adjoint operands are transposed."""
    operands = []
    for index, flag in ((0, "adjX"), (1, "adjY")):
        order = list(range(node.tensor(index).rank))
        order[-2:] = order[:-3:-1]
        operands.append(node.builder.weight(node.tensor(index), order if node.option(flag) else None))
    if is_hybrid(node):
        operands[0] = rounded(node, operands[0], -1)
    node.give_real(node.add("MatMul", operands))


RULES: dict[str, Rule] = {"BATCH_MATMUL": batch_matmul, "FULLY_CONNECTED": fully_connected}
