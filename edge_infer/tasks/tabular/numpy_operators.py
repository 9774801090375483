"""The operators of expressions on whole columns by numpy: the same bits as `plain_operators`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.tasks.tabular.plain_operators import LN2_HIGH, LN2_LOW, ODD, ROOT_HALF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Numbers = np.ndarray[Any, np.dtype[np.float64]]


def _log(x: Numbers) -> Numbers:
    is_normal = (x > 0) & (x < np.inf)
    m, k = np.frexp(np.where(is_normal, x, 1.0))
    is_low = m < ROOT_HALF
    m, k = np.where(is_low, m * 2.0, m), np.where(is_low, k - 1, k)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    total = np.zeros_like(s)
    for factor in ODD:
        total = total * z + factor
    found = k * LN2_HIGH + (k * LN2_LOW + 2.0 * s * total)
    return np.where(is_normal, found, np.where(x == 0, -np.inf, np.where(x == np.inf, np.inf, np.nan)))


def _log1p(x: Numbers) -> Numbers:
    u = 1.0 + x
    is_plain = (u == 1) | (u == np.inf)
    return np.where(is_plain, x, _log(u) * (x / (u - 1.0)))


def _is_true(x: Numbers) -> Any:
    return (x != 0) & ~np.isnan(x)


def _with_gaps(found: Any, *given: Numbers) -> Numbers:
    missing = np.isnan(given[0])
    for one in given[1:]:
        missing = missing | np.isnan(one)
    return np.where(missing, np.nan, found)


def _chosen(condition: Any, a: Numbers, b: Numbers) -> Numbers:
    return np.where(condition, a, b)


def _and(a: Numbers, b: Numbers) -> Numbers:
    return np.where((a == 0) | (b == 0), 0.0, _with_gaps(1.0, a, b))


def _or(a: Numbers, b: Numbers) -> Numbers:
    return np.where(_is_true(a) | _is_true(b), 1.0, _with_gaps(0.0, a, b))


def _compared(compare: Callable[[Numbers, Numbers], Any]) -> Callable[[Numbers, Numbers], Numbers]:
    return lambda a, b: _with_gaps(compare(a, b), a, b)


def found_in(keys: Sequence[float], values: Sequence[float], asked: Numbers) -> Numbers:
    """Return the value of each key; NaN where there is none."""
    order = np.argsort(np.asarray(keys, np.float64), kind="stable")
    known, answers = np.asarray(keys, np.float64)[order], np.asarray(values, np.float64)[order]
    if not len(known):
        return np.full(len(asked), np.nan)
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[places] == asked, answers[places], np.nan)


OPERATORS: dict[str, Callable[..., Numbers]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "==": _compared(lambda a, b: a == b),
    "!=": _compared(lambda a, b: a != b),
    "<": _compared(lambda a, b: a < b),
    "<=": _compared(lambda a, b: a <= b),
    ">": _compared(lambda a, b: a > b),
    ">=": _compared(lambda a, b: a >= b),
    "&": _and,
    "|": _or,
    "fill_null": lambda a, b: _chosen(np.isnan(a), b, a),
    "neg": lambda a: -a,
    "abs": np.abs,
    "not": lambda a: _with_gaps(a == 0, a),
    "log": _log,
    "log1p": _log1p,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "is_null": lambda a: np.isnan(a).astype(np.float64),
    "clip": lambda a, low, high: np.where(a < low, low, np.where(a > high, high, a)),
    "when": lambda condition, a, b: _chosen(_is_true(condition), a, b),
}
