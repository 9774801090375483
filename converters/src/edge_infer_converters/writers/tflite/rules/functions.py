"""Functions of one variable that TFLite has under no name, written as formulas of what it has."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.rules.elementwise import absolute, layout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule

    Written = Callable[[Formula, Tensor], Tensor]

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: |error| <= 1.5e-7.
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_P = 0.3275911
# Klambauer et al. 2017, https://arxiv.org/abs/1706.02515; the digits are those of ONNX.
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def erf(f: Formula, x: Tensor) -> Tensor:
    """Sign(x) (1 - t (a1 + t (a2 + ...)) exp(-x^2)) with t = 1 / (1 + p |x|)."""
    size = f.unary("ABS", x)
    t = f.divide(1.0, f.add(f.multiply(size, _ERF_P), 1.0))
    polynomial = f.multiply(t, _ERF[0])
    for factor in _ERF[1:]:
        polynomial = f.multiply(f.add(polynomial, factor), t)
    decay = f.unary("EXP", f.unary("NEG", f.multiply(size, size)))
    return f.multiply(f.unary("SIGN", x), f.subtract(1.0, f.multiply(polynomial, decay)))


def softplus(f: Formula, x: Tensor) -> Tensor:
    """max(x, 0) + log(1 + exp(-|x|)), which overflows for no x."""
    decay = f.unary("EXP", f.unary("NEG", f.unary("ABS", x)))
    return f.add(f.binary("MAXIMUM", x, 0.0), f.unary("LOG", f.add(decay, 1.0)))


def softsign(f: Formula, x: Tensor) -> Tensor:
    """X / (1 + |x|)."""
    return f.divide(x, f.add(f.unary("ABS", x), 1.0))


def mish(f: Formula, x: Tensor) -> Tensor:
    """X tanh(softplus(x)), which is x w / (w + 2) with e = exp(x) and w = e (e + 2); past 20 it is x."""
    e = f.unary("EXP", f.binary("MINIMUM", x, 20.0))
    w = f.multiply(e, f.add(e, 2.0))
    return f.multiply(x, f.divide(w, f.add(w, 2.0)))


def tangent(f: Formula, x: Tensor) -> Tensor:
    """Sin / cos."""
    return f.divide(f.unary("SIN", x), f.unary("COS", x))


def cosh(f: Formula, x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2."""
    return f.multiply(f.add(f.unary("EXP", x), f.unary("EXP", f.unary("NEG", x))), 0.5)


def sinh(f: Formula, x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2."""
    return f.multiply(f.subtract(f.unary("EXP", x), f.unary("EXP", f.unary("NEG", x))), 0.5)


def asinh(f: Formula, x: Tensor) -> Tensor:
    """Sign(x) log(|x| + sqrt(x^2 + 1))."""
    size = f.unary("ABS", x)
    root = f.unary("SQRT", f.add(f.multiply(x, x), 1.0))
    return f.multiply(f.unary("SIGN", x), f.unary("LOG", f.add(size, root)))


def acosh(f: Formula, x: Tensor) -> Tensor:
    """Log(x + sqrt(x^2 - 1))."""
    return f.unary("LOG", f.add(x, f.unary("SQRT", f.subtract(f.multiply(x, x), 1.0))))


def atanh(f: Formula, x: Tensor) -> Tensor:
    """Log((1 + x) / (1 - x)) / 2."""
    return f.multiply(f.unary("LOG", f.divide(f.add(x, 1.0), f.subtract(1.0, x))), 0.5)


def arc(f: Formula, y: Tensor, x: Tensor) -> Tensor:
    """Give the angle of (x, y)."""
    return f.operator("ATAN2", [y, x], y.signature, options=schema.ATan2OptionsT())


def atan(f: Formula, x: Tensor) -> Tensor:
    """The angle of (1, x); ATAN2 wants both of one shape, and x^0 is 1 for infinite ones too."""
    return arc(f, x, f.binary("POW", x, 0.0))


def asin(f: Formula, x: Tensor) -> Tensor:
    """The angle of (sqrt(1 - x^2), x)."""
    return arc(f, x, f.unary("SQRT", f.subtract(1.0, f.multiply(x, x))))


def acos(f: Formula, x: Tensor) -> Tensor:
    """A right angle less asin."""
    return f.subtract(pi / 2, asin(f, x))


def reciprocal(f: Formula, x: Tensor) -> Tensor:
    """1 / x."""
    return f.divide(1.0, x)


def swish(node: Node) -> None:
    """X sigmoid(alpha x)."""
    f, layout = Formula(node), layout_of(node)
    x, alpha = node.input(0, layout), node.number("alpha", 1.0)
    node.give(f.multiply(x, f.unary("LOGISTIC", x if alpha == 1.0 else f.multiply(x, alpha))), layout)


def selu(node: Node) -> None:
    """Gamma x where positive, else gamma alpha (exp(x) - 1)."""
    _exponential_below_zero(node, node.number("alpha", _SELU_ALPHA), node.number("gamma", _SELU_GAMMA))


def elu(node: Node) -> None:
    """TFLite fixes alpha to 1; other ones are written out."""
    f, layout = Formula(node), layout_of(node)
    if node.number("alpha", 1.0) == 1.0:
        node.give(f.unary("ELU", node.input(0, layout)), layout)
    else:
        _exponential_below_zero(node, node.number("alpha", 1.0), 1.0)


def _exponential_below_zero(node: Node, alpha: float, gamma: float) -> None:
    """Gamma * (max(x, 0) + alpha * elu(min(x, 0)))."""
    f, layout = Formula(node), layout_of(node)
    x = node.input(0, layout)
    below = f.multiply(f.unary("ELU", f.binary("MINIMUM", x, 0.0)), alpha * gamma)
    above = f.unary("RELU", x)
    node.give(f.add(above if gamma == 1.0 else f.multiply(above, gamma), below), layout)


def celu(node: Node) -> None:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1)."""
    f, layout = Formula(node), layout_of(node)
    x, alpha = node.input(0, layout), node.number("alpha", 1.0)
    below = f.unary("ELU", f.multiply(f.binary("MINIMUM", x, 0.0), 1 / alpha))
    node.give(f.add(f.unary("RELU", x), f.multiply(below, alpha)), layout)


def thresholded_relu(node: Node) -> None:
    """X where above alpha, else 0."""
    f, layout = Formula(node), layout_of(node)
    x = node.input(0, layout)
    node.give(f.select(f.binary("GREATER", x, node.number("alpha", 1.0)), x, 0.0), layout)


def shrink(node: Node) -> None:
    """X moved towards 0 by `bias`, and 0 within `lambd`."""
    f, layout = Formula(node), layout_of(node)
    x, bias, limit = node.input(0, layout), node.number("bias", 0.0), node.number("lambd", 0.5)
    above = f.select(f.binary("GREATER", x, limit), f.subtract(x, bias), 0.0)
    node.give(f.select(f.binary("LESS", x, -limit), f.add(x, bias), above), layout)


def modulo(node: Node) -> None:
    """The rest, of the divisor's sign; with `fmod` of the dividend's."""
    f = Formula(node)
    left, right = node.input(0), node.input(1)
    if not node.integer("fmod", 0):
        node.give(f.binary("FLOOR_MOD", left, right))
        return
    rest = f.binary("FLOOR_MOD", absolute(f, left), absolute(f, right))
    node.give(f.select(f.binary("LESS", left, 0.0), f.unary("NEG", rest), rest))


def sum_of_many(node: Node) -> None:
    """Sum, and Mean, of any number of operands."""
    f = Formula(node)
    total = node.input(0)
    for i in range(1, len(node.inputs)):
        total = f.add(total, node.input(i))
    if node.op_type == "Mean" and len(node.inputs) > 1:
        total = f.multiply(total, 1 / len(node.inputs))
    node.give(total)


def cumulated(node: Node) -> None:
    """The sum of all elements up to each."""
    f, value = Formula(node), node.input()
    axis = node.stored("axis", np.array(int(node.needed_constant(1).reshape(())) % value.rank, np.int32))
    options = schema.CumsumOptionsT()
    options.exclusive = bool(node.integer("exclusive", 0))
    options.reverse = bool(node.integer("reverse", 0))
    node.give(f.operator("CUMSUM", [value, axis], value.signature, options=options))


def _rule(written: Written) -> Rule:
    def rule(node: Node) -> None:
        layout = layout_of(node)
        node.give(written(Formula(node), node.input(0, layout)), layout)

    rule.__doc__ = written.__doc__
    return rule


RULES: dict[str, Rule] = {
    "Acos": _rule(acos),
    "Acosh": _rule(acosh),
    "Asin": _rule(asin),
    "Asinh": _rule(asinh),
    "Atan": _rule(atan),
    "Atanh": _rule(atanh),
    "Celu": celu,
    "Cosh": _rule(cosh),
    "CumSum": cumulated,
    "Elu": elu,
    "Erf": _rule(erf),
    "Mean": sum_of_many,
    "Mish": _rule(mish),
    "Mod": modulo,
    "Reciprocal": _rule(reciprocal),
    "Selu": selu,
    "Shrink": shrink,
    "Sinh": _rule(sinh),
    "Softplus": _rule(softplus),
    "Softsign": _rule(softsign),
    "Sum": sum_of_many,
    "Swish": swish,
    "Tan": _rule(tangent),
    "ThresholdedRelu": thresholded_relu,
}
