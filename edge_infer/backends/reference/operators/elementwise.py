"""Operators that take elements one by one: arithmetic, comparisons, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.backends.reference.call import Array, Call, Operator

#: Blocks that stay in a processor's cache while a polynomial passes over them.
_BLOCK = 1 << 15


def unary(function: Callable[..., Any]) -> Operator:
    """Make an operator of one input, whose output has the same type, of a function that takes no attribute."""

    def run(call: Call, x: Array) -> Array:
        return np.asarray(function(x)).astype(x.dtype, copy=False)

    return run


def with_attributes(function: Callable[..., Any], **defaults: Any) -> Operator:
    """Make the same of a function that takes attributes, with their defaults."""

    def run(call: Call, x: Array, *rest: Array) -> Array:
        given = {name: call.get(name, default) for name, default in defaults.items()}
        return np.asarray(function(x, *rest, **given)).astype(x.dtype, copy=False)

    return run


def binary(function: Callable[..., Any]) -> Operator:
    """Make an operator of two inputs that spread over each other."""

    def run(call: Call, a: Array, b: Array) -> Array:
        return np.asarray(function(a, _spread(call, a, b)))

    return run


def _spread(call: Call, a: Array, b: Array) -> Array:
    """Move the second input to where `axis` says: operators before version 7 spread so."""
    axis = call.get("axis", None) if call.opset < 7 else None
    return b if axis is None else b.reshape(b.shape + (1,) * (a.ndim - axis % a.ndim - b.ndim))


def variadic(function: Callable[[Array, Array], Any]) -> Operator:
    """Make an operator of any number of inputs."""

    def run(call: Call, first: Array, *rest: Array) -> Array:
        for one in rest:
            first = np.asarray(function(first, one))
        return first

    return run


def mean(call: Call, *inputs: Array) -> Array:
    """Compute Mean."""
    total = variadic(np.add)(call, *inputs)
    return np.asarray(total / len(inputs)).astype(inputs[0].dtype)


def divide(a: Array, b: Array) -> Array:
    """Divide; integers are cut towards zero, and by zero give zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.asarray(a // b)
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))
    return np.asarray(quotient).astype(a.dtype)


def power(a: Array, b: Array) -> Array:
    """Compute Pow: of the type of the base."""
    if a.dtype.kind != "f" and (b.dtype.kind == "f" or np.any(b < 0)):
        return np.asarray(np.power(a.astype(np.float64), b)).astype(a.dtype)
    return np.asarray(np.power(a, b)).astype(a.dtype)


def modulo(call: Call, a: Array, b: Array) -> Array:
    """Compute Mod: with the sign of the divisor, or of the dividend where `fmod` is 1."""
    return np.asarray(np.fmod(a, b) if call.get("fmod", 0) else np.mod(a, b))


def bit_shift(call: Call, a: Array, b: Array) -> Array:
    """Compute BitShift."""
    return np.asarray(a << b if call.get("direction", "") == "LEFT" else a >> b)


#: Cephes, ndtr.c (Moshier), where |x| < 1; then for the complement.
_T = (
    9.60497373987051638749,
    90.0260197203842689217,
    2232.00534594684319226,
    7003.32514112805075473,
    55592.3013010394962768,
)
_U = (
    *(1.0, 33.5617141647503099647, 521.357949780152679795, 4594.32382970980127987),
    *(22629.0000613890934246, 49267.3942608635921086),
)
_P = (
    *(2.46196981473530512524e-10, 0.564189564831068821977, 7.46321056442269912687, 48.6371970985681366614),
    *(196.520832956077098242, 526.445194995477358631, 934.528527171957607540, 1027.55188689515710272),
    557.535335369399327526,
)
_Q = (
    *(1.0, 13.2281951154744992508, 86.7072140885989742329, 354.937778887819891062, 975.708501743205489753),
    *(1823.90916687909736289, 2246.33760818710981792, 1656.66309194161350182, 557.535340817727675546),
)


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    kind = x.dtype.type
    total = np.full_like(x, coefficients[0])
    for one in coefficients[1:]:
        total *= x
        total += kind(one)
    return total


def error_function(x: Array) -> Array:
    """Compute erf in double precision, within 3e-16 of the true value."""
    flat = np.ascontiguousarray(x, np.float64).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        size, square = np.abs(block), np.square(block)
        found = block * _polynomial(square, _T) / _polynomial(square, _U)
        outer = np.flatnonzero(~(size < 1))
        if outer.size:
            far = np.minimum(size[outer], 8.0)
            rest = np.exp(-far * far) * _polynomial(far, _P) / _polynomial(far, _Q)
            found[outer] = np.copysign(1 - rest, block[outer]) + 0 * block[outer].clip(-1, 1)
        result[start : start + _BLOCK] = found
    return result.reshape(x.shape).astype(x.dtype, copy=False)


def sigmoid(x: Array) -> Array:
    """Compute the logistic function without overflow."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def softplus(x: Array) -> Array:
    """Compute ln(1 + e^x) without overflow."""
    return np.asarray(np.logaddexp(x, np.zeros((), x.dtype)))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, alpha: float) -> Array:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + error_function(np.asarray(x / np.sqrt(2.0)).astype(x.dtype)))


def _shrink(x: Array, bias: float, lambd: float) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


def clip(call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Compute Clip; its bounds were attributes before version 11."""
    if call.opset < 11:
        low, high = call.get("min", None), call.get("max", None)
    if low is not None:
        x = np.maximum(x, np.asarray(low, x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high, x.dtype))
    return np.asarray(x)


def is_infinite(call: Call, x: Array) -> Array:
    """Compute IsInf, of one sign where the attributes say so."""
    found = np.zeros(x.shape, bool)
    if call.get("detect_positive", 1):
        found |= np.isposinf(x)
    if call.get("detect_negative", 1):
        found |= np.isneginf(x)
    return found


def prelu(call: Call, x: Array, slope: Array) -> Array:
    """Compute PRelu; the slope spreads over x, before version 7 by channels."""
    if call.opset < 7 and slope.ndim == 1 and slope.size > 1:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope, x).astype(x.dtype)


def swiglu(call: Call, a: Array, b: Array) -> Array:
    """Compute SwiGLU: swish of the first, times the second."""
    if a.shape != b.shape:
        raise ValueError(f"shapes {a.shape} and {b.shape}, expected one shape")
    return np.asarray(a * sigmoid(call.get("alpha", 1.0) * a) * b).astype(a.dtype)


def _leaky(x: Array, alpha: float) -> Array:
    return np.where(x < 0, alpha * x, x)


def _absolute(x: Array) -> Array:
    return np.abs(x)


OPERATORS: dict[str, Operator] = {
    "Add": binary(np.add),
    "Sub": binary(np.subtract),
    "Mul": binary(np.multiply),
    "Div": binary(divide),
    "Pow": binary(power),
    "Mod": modulo,
    "BitShift": bit_shift,
    "BitwiseAnd": binary(np.bitwise_and),
    "BitwiseOr": binary(np.bitwise_or),
    "BitwiseXor": binary(np.bitwise_xor),
    "BitwiseNot": unary(np.invert),
    "And": binary(np.logical_and),
    "Or": binary(np.logical_or),
    "Xor": binary(np.logical_xor),
    "Not": unary(np.logical_not),
    "Equal": binary(np.equal),
    "Less": binary(np.less),
    "LessOrEqual": binary(np.less_equal),
    "Greater": binary(np.greater),
    "GreaterOrEqual": binary(np.greater_equal),
    "Max": variadic(np.maximum),
    "Min": variadic(np.minimum),
    "Sum": variadic(np.add),
    "Mean": mean,
    "Abs": unary(_absolute),
    "Neg": unary(np.negative),
    "Sqrt": unary(np.sqrt),
    "Reciprocal": unary(np.reciprocal),
    "Floor": unary(np.floor),
    "Ceil": unary(np.ceil),
    "Round": unary(np.rint),
    "Exp": unary(np.exp),
    "Log": unary(np.log),
    "Sin": unary(np.sin),
    "Cos": unary(np.cos),
    "Tan": unary(np.tan),
    "Asin": unary(np.arcsin),
    "Acos": unary(np.arccos),
    "Atan": unary(np.arctan),
    "Sinh": unary(np.sinh),
    "Cosh": unary(np.cosh),
    "Asinh": unary(np.arcsinh),
    "Acosh": unary(np.arccosh),
    "Atanh": unary(np.arctanh),
    "Tanh": unary(np.tanh),
    "Sign": unary(np.sign),
    "Erf": unary(error_function),
    "Sigmoid": unary(sigmoid),
    "Softplus": unary(softplus),
    "Softsign": unary(lambda x: x / (1 + np.abs(x))),
    "Relu": unary(lambda x: np.maximum(x, np.zeros((), x.dtype))),
    "Mish": unary(lambda x: x * np.tanh(softplus(x))),
    "HardSwish": unary(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LeakyRelu": with_attributes(_leaky, alpha=0.01),
    "Elu": with_attributes(_elu, alpha=1.0),
    "Selu": with_attributes(_selu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Celu": with_attributes(_celu, alpha=1.0),
    "Gelu": with_attributes(_gelu, approximate="none"),
    "HardSigmoid": with_attributes(_hard_sigmoid, alpha=0.2, beta=0.5),
    "Shrink": with_attributes(_shrink, bias=0.0, lambd=0.5),
    "ThresholdedRelu": with_attributes(lambda x, alpha: np.where(x > alpha, x, 0), alpha=1.0),
    "Swish": with_attributes(lambda x, alpha: x * sigmoid(alpha * x), alpha=1.0),
    "SwiGLU": swiglu,
    "PRelu": prelu,
    "Clip": clip,
    "IsNaN": lambda call, x: np.isnan(x),
    "IsInf": is_infinite,
    "Where": lambda call, condition, x, y: np.where(condition, x, y),
}
