"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from edge_infer_converters.writers.from_tflite.builder import Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule


def _all(node: Node) -> tuple[list[str], str]:
    layout = node.layout(*range(node.count))
    return [node.real(i, layout) for i in range(node.count)], layout


def _plain(kind: str, **attributes: Any) -> Rule:
    def rule(node: Node) -> None:
        inputs, layout = _all(node)
        node.give_real(node.add(kind, inputs, **attributes), layout)

    rule.__doc__ = f"{kind}, broadcast as numpy does."
    return rule


def square(node: Node) -> None:
    """Mul by itself."""
    inputs, layout = _all(node)
    node.give_real(node.add("Mul", inputs * 2), layout)


def squared_difference(node: Node) -> None:
    """Sub, then Mul by itself."""
    inputs, layout = _all(node)
    node.give_real(node.add("Mul", [node.add("Sub", inputs)] * 2), layout)


def rsqrt(node: Node) -> None:
    """Reciprocal of Sqrt."""
    inputs, layout = _all(node)
    node.give_real(node.add("Reciprocal", [node.add("Sqrt", inputs)]), layout)


def not_equal(node: Node) -> None:
    """Not of Equal."""
    inputs, layout = _all(node)
    node.give(node.add("Not", [node.add("Equal", inputs)]), layout)


def floor_div(node: Node) -> None:
    """Floor of Div; integers by way of float64."""
    inputs, layout = _all(node)
    if node.output.dtype.kind == "f":
        node.give_real(node.add("Floor", [node.add("Div", inputs)]), layout)
        return
    wide = [node.add("Cast", [one], to=TensorProto.DOUBLE) for one in inputs]
    kind = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}.get(node.output.dtype)
    if kind is None:
        raise Unsupported(f"integers of {node.output.dtype}")
    node.give(node.add("Cast", [node.add("Floor", [node.add("Div", wide)])], to=kind), layout)


def floor_mod(node: Node) -> None:
    """Mod with the sign of the divisor; of floats x - floor(x / y) y."""
    inputs, layout = _all(node)
    if node.output.dtype.kind != "f":
        node.give(node.add("Mod", inputs), layout)
        return
    whole = node.add("Mul", [node.add("Floor", [node.add("Div", inputs)]), inputs[1]])
    node.give_real(node.add("Sub", [inputs[0], whole]), layout)


def select(node: Node) -> None:
    """Where."""
    if node.operator.code == "SELECT" and node.tensor(0).rank < node.tensor(1).rank:
        raise Unsupported("a condition of lower rank")
    inputs, layout = _all(node)
    node.give_real(node.add("Where", inputs), layout)


RULES: dict[str, Rule] = {
    "ABS": _plain("Abs"),
    "ADD": _plain("Add"),
    "ADD_N": _plain("Sum"),
    "CEIL": _plain("Ceil"),
    "COS": _plain("Cos"),
    "DIV": _plain("Div"),
    "EQUAL": _plain("Equal"),
    "EXP": _plain("Exp"),
    "FLOOR": _plain("Floor"),
    "FLOOR_DIV": floor_div,
    "FLOOR_MOD": floor_mod,
    "GREATER": _plain("Greater"),
    "GREATER_EQUAL": _plain("GreaterOrEqual"),
    "LESS": _plain("Less"),
    "LESS_EQUAL": _plain("LessOrEqual"),
    "LOG": _plain("Log"),
    "LOGICAL_AND": _plain("And"),
    "LOGICAL_NOT": _plain("Not"),
    "LOGICAL_OR": _plain("Or"),
    "MAXIMUM": _plain("Max"),
    "MINIMUM": _plain("Min"),
    "MUL": _plain("Mul"),
    "NEG": _plain("Neg"),
    "NOT_EQUAL": not_equal,
    "POW": _plain("Pow"),
    "ROUND": _plain("Round"),
    "RSQRT": rsqrt,
    "SELECT": select,
    "SELECT_V2": select,
    "SIGN": _plain("Sign"),
    "SIN": _plain("Sin"),
    "SQRT": _plain("Sqrt"),
    "SQUARE": square,
    "SQUARED_DIFFERENCE": squared_difference,
    "SUB": _plain("Sub"),
}
