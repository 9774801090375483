"""Operators that compute each element by itself, in whichever order of the axes their inputs have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import option, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_UNARY = {
    "RELU": "Relu",
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "ABS": "Abs",
    "NEG": "Neg",
    "EXP": "Exp",
    "LOG": "Log",
    "SQRT": "Sqrt",
    "SIN": "Sin",
    "COS": "Cos",
    "FLOOR": "Floor",
    "CEIL": "Ceil",
    "ROUND": "Round",
    "SIGN": "Sign",
    "ELU": "Elu",
    "HARD_SWISH": "HardSwish",
    "LOGICAL_NOT": "Not",
}
_BINARY = {
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "DIV": "Div",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "POW": "Pow",
    "EQUAL": "Equal",
    "LESS": "Less",
    "GREATER": "Greater",
    "LESS_EQUAL": "LessOrEqual",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
}
_LIMITS = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}


def unary(operator: Operator, graph: Graph) -> None:
    """One node."""
    _each(operator, graph, lambda value: graph.node(_UNARY[operator.code], [value]))


def clip(operator: Operator, graph: Graph) -> None:
    """RELU6 and its like."""
    limits = [graph.constant(np.array(limit, np.float32)) for limit in _LIMITS[operator.code]]
    _each(operator, graph, lambda value: graph.node("Clip", [value, *limits]))


def leaky_relu(operator: Operator, graph: Graph) -> None:
    """The slope of negative numbers is an option."""
    _each(operator, graph, lambda value: graph.node("LeakyRelu", [value], alpha=float(option(operator, "alpha"))))


def square(operator: Operator, graph: Graph) -> None:
    """A number times itself."""
    _each(operator, graph, lambda value: graph.node("Mul", [value, value]))


def reciprocal_root(operator: Operator, graph: Graph) -> None:
    """1 / sqrt(x)."""
    _each(operator, graph, lambda value: graph.node("Reciprocal", [graph.node("Sqrt", [value])]))


def gelu(operator: Operator, graph: Graph) -> None:
    """X / 2 (1 + erf(x / sqrt 2)), or the form with tanh (Hendrycks and Gimpel, arXiv:1606.08415)."""

    def number(value: float) -> str:
        return graph.constant(np.array(value, np.float32))

    def compute(value: str) -> str:
        if option(operator, "approximate", default=False):
            cube = graph.node("Mul", [graph.node("Mul", [value, value]), value])
            sum_ = graph.node("Add", [value, graph.node("Mul", [cube, number(0.044715)])])
            inner = graph.node("Tanh", [graph.node("Mul", [sum_, number(np.sqrt(2 / np.pi))])])
        else:
            inner = graph.node("Erf", [graph.node("Mul", [value, number(np.sqrt(0.5))])])
        half = graph.node("Mul", [value, number(0.5)])
        return str(graph.node("Mul", [half, graph.node("Add", [inner, number(1)])]))

    _each(operator, graph, compute)


def cast(operator: Operator, graph: Graph) -> None:
    """Between types; floats lose what stands behind the point."""
    given, output = tensor(operator, 0), operator.outputs[0]
    first = graph.prefers_first(given)
    to = helper.np_dtype_to_tensor_dtype(output.dtype)
    graph.give_raw(output, graph.node("Cast", [graph.raw(given, first=first)], to=to), first=first)


def binary(operator: Operator, graph: Graph) -> None:
    """One node, with the activation that the operator ends with."""
    _both(operator, graph, lambda a, b: graph.node(_BINARY[operator.code], [a, b]))


def add_all(operator: Operator, graph: Graph) -> None:
    """The sum of several tensors of one shape."""
    given = [tensor(operator, place) for place in range(len(operator.inputs))]
    first = graph.prefers_first(*given)
    value = graph.node("Sum", [graph.real(one, first=first) for one in given])
    graph.give(operator.outputs[0], value, first=first)


def angle(operator: Operator, graph: Graph) -> None:
    """The angle of a point (Y, X), from -pi to pi; ONNX has only the one of a quotient."""
    _only_floats(operator)

    def number(value: float) -> str:
        return graph.constant(np.array(value, np.float32))

    def compute(y: str, x: str) -> str:
        is_down = graph.node("Less", [y, number(0)])
        ahead = graph.node("Atan", [graph.node("Div", [y, x])])
        behind = graph.node("Add", [ahead, graph.node("Where", [is_down, number(-np.pi), number(np.pi)])])
        upright = graph.node("Mul", [graph.node("Sign", [y]), number(np.pi / 2)])
        side = graph.node("Where", [graph.node("Less", [x, number(0)]), behind, ahead])
        return str(graph.node("Where", [graph.node("Equal", [x, number(0)]), upright, side]))

    _both(operator, graph, compute)


def not_equal(operator: Operator, graph: Graph) -> None:
    """ONNX has only its opposite."""
    _both(operator, graph, lambda a, b: graph.node("Not", [graph.node("Equal", [a, b])]))


def squared_difference(operator: Operator, graph: Graph) -> None:
    """(a - b)²."""

    def compute(a: str, b: str) -> str:
        difference = graph.node("Sub", [a, b])
        return str(graph.node("Mul", [difference, difference]))

    _both(operator, graph, compute)


def floor_div(operator: Operator, graph: Graph) -> None:
    """The quotient, rounded down: of floats in double precision, as TFLite divides them."""
    if tensor(operator, 0).dtype.kind == "i":  # what is left after the remainder divides without rest
        _both(operator, graph, lambda a, b: graph.node("Div", [graph.node("Sub", [a, graph.node("Mod", [a, b])]), b]))
        return
    _only_floats(operator)

    def compute(a: str, b: str) -> str:
        sides = [graph.node("Cast", [one], to=TensorProto.DOUBLE) for one in (a, b)]
        whole = graph.node("Floor", [graph.node("Div", sides)])
        return str(graph.node("Cast", [whole], to=TensorProto.FLOAT))

    _both(operator, graph, compute)


def floor_mod(operator: Operator, graph: Graph) -> None:
    """The remainder, which has the sign of the divisor."""
    if tensor(operator, 0).dtype.kind == "i":
        _both(operator, graph, lambda a, b: graph.node("Mod", [a, b]))
        return
    _only_floats(operator)

    def compute(a: str, b: str) -> str:
        left = graph.node("Mod", [a, b], fmod=1)
        is_other = graph.node("Less", [graph.node("Mul", [left, b]), graph.constant(np.array(0, np.float32))])
        return str(graph.node("Where", [is_other, graph.node("Add", [left, b]), left]))

    _both(operator, graph, compute)


def prelu(operator: Operator, graph: Graph) -> None:
    """The slopes of negative numbers are a tensor."""
    _both(operator, graph, lambda a, b: graph.node("PRelu", [a, b]))


def select(operator: Operator, graph: Graph) -> None:
    """The second or the third, by the first; SELECT's flat condition chooses rows."""
    condition, *chosen = (tensor(operator, place) for place in range(3))
    output = operator.outputs[0]
    flag = graph.raw(condition)
    if operator.code == "SELECT" and condition.rank == 1 and output.rank > 1:
        flag = graph.reshaped(flag, (-1, *[1] * (output.rank - 1)))
    a, b = (graph.real(one) for one in chosen)
    graph.give(output, where(graph, flag, a, b, output))


def where(graph: Graph, flag: str, a: str, b: str, like: Tensor) -> str:
    """Choose elements of the type of a tensor; ONNX Runtime chooses none of bool and int16."""
    if like.dtype != np.bool_ and (like.dtype != np.int16 or like.quantization is not None):
        return str(graph.node("Where", [flag, a, b]))
    sides = [graph.node("Cast", [one], to=TensorProto.INT32) for one in (a, b)]
    to = helper.np_dtype_to_tensor_dtype(like.dtype)
    return str(graph.node("Cast", [graph.node("Where", [flag, *sides])], to=to))


def _only_floats(operator: Operator) -> None:
    if tensor(operator, 0).dtype != np.float32:
        raise UnsupportedModel(f"elements of {tensor(operator, 0).dtype}")


def _each(operator: Operator, graph: Graph, compute: Callable[[str], str]) -> None:
    given, output = tensor(operator, 0), operator.outputs[0]
    first = graph.prefers_first(given)
    graph.give(output, compute(graph.real(given, first=first)), first=first)


def _both(operator: Operator, graph: Graph, compute: Callable[[str, str], str]) -> None:
    a, b, output = tensor(operator, 0), tensor(operator, 1), operator.outputs[0]
    first = graph.prefers_first(a, b) and output.rank == 4
    value = compute(graph.real(a, first=first), graph.real(b, first=first))
    graph.give(output, graph.activated(value, option(operator, "fusedActivationFunction"), output), first=first)


RULES = {
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_LIMITS, clip),
    **dict.fromkeys(_BINARY, binary),
    "LEAKY_RELU": leaky_relu,
    "SQUARE": square,
    "RSQRT": reciprocal_root,
    "GELU": gelu,
    "CAST": cast,
    "ADD_N": add_all,
    "ATAN2": angle,
    "NOT_EQUAL": not_equal,
    "SQUARED_DIFFERENCE": squared_difference,
    "FLOOR_DIV": floor_div,
    "FLOOR_MOD": floor_mod,
    "PRELU": prelu,
    "SELECT": select,
    "SELECT_V2": select,
}
