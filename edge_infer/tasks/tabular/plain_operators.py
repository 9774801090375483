"""The operators of expressions on single numbers, for where numpy is not: the same bits as `numpy_operators`.

NaN is a missing number. Logarithms are made of additions, multiplications and divisions alone, because those of
libraries differ in the last bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: ln 2 in two parts: the constants of fdlibm's e_log.c.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: The terms of 2 artanh(s) / s in s squared, the last first.
ODD = tuple(1.0 / odd for odd in range(25, 0, -2))
ROOT_HALF = 0.7071067811865476


def divide(a: float, b: float) -> float:
    """Return `a / b` as IEEE 754 has it."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def log(x: float) -> float:
    """Return the natural logarithm to 1e-15; of numbers below 0 it is missing.

    With x = m * 2**k and m between the roots of 1/2 and 2, ln m = 2 artanh((m - 1) / (m + 1)) by its series.
    """
    if math.isnan(x) or x < 0:
        return math.nan
    if x in (0, math.inf):
        return -math.inf if x == 0 else x
    m, k = math.frexp(x)
    if m < ROOT_HALF:
        m, k = m * 2.0, k - 1
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    total = 0.0
    for factor in ODD:
        total = total * z + factor
    return k * LN2_HIGH + (k * LN2_LOW + 2.0 * s * total)


def log1p(x: float) -> float:
    """Return ln(1 + x), small `x` included (Kahan: the error of 1 + x divides out)."""
    u = 1.0 + x
    if u in (1, math.inf):
        return x
    return log(u) * divide(x, u - 1.0)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _floor(x: float) -> float:
    return math.copysign(float(math.floor(x)), x) if abs(x) < 2.0**52 else x


def _and(a: float, b: float) -> float:
    if a == 0 or b == 0:
        return 0.0
    return math.nan if math.isnan(a) or math.isnan(b) else 1.0


def _or(a: float, b: float) -> float:
    if _is_true(a) or _is_true(b):
        return 1.0
    return math.nan if math.isnan(a) or math.isnan(b) else 0.0


def _is_true(x: float) -> bool:
    return x != 0 and not math.isnan(x)


def _compared(compare: Callable[[float, float], bool]) -> Callable[[float, float], float]:
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else float(compare(a, b))


def clip(x: float, low: float, high: float) -> float:
    """Return a number within two bounds; a missing one stays."""
    if x < low:
        return low
    return high if x > high else x


def when(condition: float, a: float, b: float) -> float:
    """Return `a` where the condition holds, `b` where it does not or is missing."""
    return a if _is_true(condition) else b


OPERATORS: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
    "==": _compared(lambda a, b: a == b),
    "!=": _compared(lambda a, b: a != b),
    "<": _compared(lambda a, b: a < b),
    "<=": _compared(lambda a, b: a <= b),
    ">": _compared(lambda a, b: a > b),
    ">=": _compared(lambda a, b: a >= b),
    "&": _and,
    "|": _or,
    "fill_null": lambda a, b: b if math.isnan(a) else a,
    "neg": lambda a: -a,
    "abs": abs,
    "not": lambda a: math.nan if math.isnan(a) else float(a == 0),
    "log": log,
    "log1p": log1p,
    "sqrt": _sqrt,
    "floor": _floor,
    "is_null": lambda a: float(math.isnan(a)),
    "clip": clip,
    "when": when,
}
