"""Operators that make one number of several: means and sums, softmax, norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.graph import FIRST
from edge_infer_converters.writers.onnx.rules.reading import constant, option, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

_REDUCTIONS = {
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
}
_LEAST_NORM = 1e-6


def reduce(operator: Operator, graph: Graph) -> None:
    """Over constant axes; over rows and columns of an image channels first."""
    given, output = tensor(operator, 0), operator.outputs[0]
    axes = sorted(int(axis) % max(given.rank, 1) for axis in constant(operator, 1).reshape(-1))
    keeps = bool(option(operator, "keepDims", default=False))
    first = graph.prefers_first(given) and (keeps or axes == [1, 2])
    value = graph.real(given, first=first)
    places = sorted(FIRST.index(axis) for axis in axes) if first else axes
    if axes:  # of none ONNX makes all
        value = graph.node(_REDUCTIONS[operator.code], [value, graph.integers(*places)], keepdims=int(keeps))
    graph.give(output, value, first=first and keeps)


def logical(operator: Operator, graph: Graph) -> None:
    """Whether any or all are true."""
    places = [int(axis) for axis in constant(operator, 1).reshape(-1)]
    if not places:
        graph.give_raw(operator.outputs[0], graph.raw(tensor(operator, 0)))
        return
    axes = graph.integers(*places)
    numbers = graph.node("Cast", [graph.raw(tensor(operator, 0))], to=6)
    kind = "ReduceMax" if operator.code == "REDUCE_ANY" else "ReduceMin"
    found = graph.node(kind, [numbers, axes], keepdims=int(option(operator, "keepDims", default=False)))
    graph.give_raw(operator.outputs[0], graph.node("Cast", [found], to=9))


def softmax(operator: Operator, graph: Graph) -> None:
    """Over the last axis; `beta` scales first."""
    given, output = tensor(operator, 0), operator.outputs[0]
    value, beta = graph.real(given), float(option(operator, "beta", 1.0))
    if operator.code == "SOFTMAX" and beta != 1:
        value = graph.node("Mul", [value, graph.constant(np.array(beta, np.float32))])
    graph.give(output, graph.node("Softmax" if operator.code == "SOFTMAX" else "LogSoftmax", [value], axis=-1))


def normalize(operator: Operator, graph: Graph) -> None:
    """Divide by the length of the last axis, which counts as 1e-6 at least."""
    given, output = tensor(operator, 0), operator.outputs[0]
    if option(operator, "fusedActivationFunction"):
        raise UnsupportedModel("an activation")
    value = graph.real(given)
    norm = graph.node("ReduceL2", [value, graph.integers(-1)], keepdims=1)
    least = graph.constant(np.array(_LEAST_NORM, np.float32))
    graph.give(output, graph.node("Div", [value, graph.node("Max", [norm, least])]))


def normalize_beside(operator: Operator, graph: Graph) -> None:
    """Divide by what lies beside in the channels (Krizhevsky et al. 2012); ONNX takes the mean of the squares."""
    given, output = tensor(operator, 0), operator.outputs[0]
    size = 2 * int(option(operator, "radius")) + 1
    bias, alpha, beta = (float(option(operator, name)) for name in ("bias", "alpha", "beta"))
    value = graph.real(given, first=True)
    value = graph.node("LRN", [value], size=size, bias=bias, alpha=alpha * size, beta=beta)
    graph.give(output, value, first=True)


RULES = {
    **dict.fromkeys(_REDUCTIONS, reduce),
    "REDUCE_ANY": logical,
    "REDUCE_ALL": logical,
    "SOFTMAX": softmax,
    "LOG_SOFTMAX": softmax,
    "L2_NORMALIZATION": normalize,
    "LOCAL_RESPONSE_NORMALIZATION": normalize_beside,
}
