"""Gemm and MatMul: FULLY_CONNECTED where the second operand is constant, else BATCH_MATMUL."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula, broadcast
from edge_infer_converters.writers.tflite.node import Unsupported, reshape

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule


def gemm(node: Node) -> None:
    """Write alpha * A @ B + beta * C, the factors multiplied into constant weights."""
    weights = node.constant(1)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    rows = node.input(0)
    if node.integer("transA", 0):
        columns, count = node.signature()
        turned = node.scratch("transposed", (count, columns))
        order = node.stored("order", np.array([1, 0], np.int32))
        node.graph.add("TRANSPOSE", [rows, order], [turned], schema.TransposeOptionsT())
        rows = turned
    if weights is None:
        if alpha != 1.0:
            raise Unsupported("alpha with computed weights")
        target = node.scratch("product", node.output_signature()) if node.has_input(2) else node.output()
        batch_matmul(node, rows, node.input(1), target, transposed=bool(node.integer("transB", 0)))
        if node.has_input(2):
            _add(node, target, beta)
        return
    matrix = (weights if node.integer("transB", 0) else weights.T) * np.asarray(alpha, weights.dtype)
    bias = node.constant(2) if node.has_input(2) else None
    if not node.has_input(2) or (bias is not None and bias.size in (1, len(matrix)) and _is_row(bias)):
        stored = None if bias is None else np.broadcast_to(bias.reshape(-1) * np.asarray(beta, bias.dtype), len(matrix))
        fully_connected(node, rows, matrix, node.output(), stored)
    else:
        product = node.scratch("product", node.output_signature())
        fully_connected(node, rows, matrix, product, None)
        _add(node, product, beta)


def matmul(node: Node) -> None:
    """A @ B over the last two axes, with any batch axes before them; vectors become matrices for a moment."""
    weights = node.constant(1)
    if weights is not None and weights.ndim >= 2 and weights.size == prod(weights.shape[-2:]):
        matrix = weights.reshape(weights.shape[-2:])
        if matrix.dtype == np.float32 and node.rank() >= max(weights.ndim, 2):
            fully_connected(node, node.input(0), matrix.T, node.output(), None)
            return
    if node.dtype() != np.float32:
        raise Unsupported(f"elements of {node.dtype()}")
    left, right = node.input(0), node.input(1)
    if left.rank > 1 and right.rank > 1:
        batch_matmul(node, left, right, node.output(), transposed=False)
        return
    f = Formula(node)
    left = f.reshape(left, (1, *left.signature)) if left.rank == 1 else left
    right = f.reshape(right, (*right.signature, 1)) if right.rank == 1 else right
    batch = broadcast(left.signature[:-2], right.signature[:-2])
    product = node.scratch("product", (*batch, left.signature[-2], right.signature[-1]))
    batch_matmul(node, left, right, product, transposed=False)
    reshape(node.graph, product, node.output())


def fully_connected(node: Node, rows: Tensor, matrix: np.ndarray, target: Tensor, bias: np.ndarray | None) -> None:
    """Write rows @ matrix.T + bias.

    Args:
        node: The node; its second input names the matrix, its third the bias.
        rows: The rows, [..., in].
        matrix: The weights, [out, in].
        target: The result, [..., out].
        bias: What is added to each row, [out], or None.

    Raises:
        Unsupported: The weights are no float32.
    """
    if matrix.dtype != np.float32:
        raise Unsupported(f"weights of type {matrix.dtype}")
    options = schema.FullyConnectedOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.NONE
    options.keepNumDims = rows.rank > 2
    kernel = node.graph.constant(node.inputs[1], matrix)
    stored = None if bias is None else node.graph.constant(node.inputs[2], bias)
    node.graph.add("FULLY_CONNECTED", [rows, kernel, stored], [target], options, 5 if options.keepNumDims else 1)


def batch_matmul(node: Node, left: Tensor, right: Tensor, target: Tensor, *, transposed: bool) -> None:
    """Write left @ right over the last two axes, the right one transposed on request."""
    options = schema.BatchMatMulOptionsT()
    options.adjY = transposed
    node.graph.add("BATCH_MATMUL", [left, right], [target], options)


def _add(node: Node, product: Tensor, beta: float) -> None:
    """Add beta * C to a product, as the node's output."""
    if beta != 1.0:
        raise Unsupported("beta with a computed or two-dimensional C")
    node.graph.add("ADD", [product, node.input(2)], [node.output()], schema.AddOptionsT())


def _is_row(bias: np.ndarray) -> bool:
    """Tell whether a C adds the same row everywhere: its last axis is the only one of more than one element."""
    return bias.size == 1 or bias.shape[-1] == bias.size


RULES: dict[str, Rule] = {"Gemm": gemm, "MatMul": matmul}
