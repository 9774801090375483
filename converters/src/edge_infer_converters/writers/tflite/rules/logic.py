"""Comparisons, logic, and the choice between two values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.rules.elementwise import common_layout, layout_of, operand

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule

_CODES = {
    "And": "LOGICAL_AND",
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
    "Or": "LOGICAL_OR",
    "Xor": "NOT_EQUAL",
}


def comparison(node: Node) -> None:
    """Two operands, broadcast; a bool for each element."""
    layout = common_layout(node)
    left, right = operand(node, 0, layout), operand(node, 1, layout)
    node.give(Formula(node).binary(_CODES[node.op_type], left, right), layout)


def negated(node: Node) -> None:
    """True for false."""
    layout = layout_of(node)
    node.give(Formula(node).unary("LOGICAL_NOT", node.input(0, layout)), layout)


def where(node: Node) -> None:
    """SELECT_V2 broadcasts all three operands."""
    layout = common_layout(node)
    condition, yes, no = (operand(node, i, layout) for i in range(3))
    node.give(Formula(node).select(condition, yes, no), layout)


def is_nan(node: Node) -> None:
    """Nothing but NaN differs from itself."""
    layout, formula = layout_of(node), Formula(node)
    value = node.input(0, layout)
    node.give(formula.binary("NOT_EQUAL", value, value), layout)


def is_infinite(node: Node) -> None:
    """Equal to one of the infinities that are asked for."""
    layout, formula = layout_of(node), Formula(node)
    value = node.input(0, layout)
    if node.integer("detect_positive", 1) and node.integer("detect_negative", 1):
        value = formula.unary("ABS", value)
    wanted = np.inf if node.integer("detect_positive", 1) else -np.inf
    result = formula.binary("EQUAL", value, wanted)
    if not node.integer("detect_positive", 1) and not node.integer("detect_negative", 1):
        result = formula.binary("LOGICAL_AND", result, False)
    node.give(result, layout)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_CODES, comparison),
    "IsInf": is_infinite,
    "IsNaN": is_nan,
    "Not": negated,
    "Where": where,
}
