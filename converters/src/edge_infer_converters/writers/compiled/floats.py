"""Calls on floats, one element at a time, for operators that are made of several kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.kernels.declarations import BINARY, UNARY
from edge_infer_converters.writers.compiled.numbers import activation_floats

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value


class Floats:
    """Calls on so many floats, of which an operator is made.

    Args:
        calls: What they are added to.
        count: How many elements each value has.
    """

    def __init__(self, calls: Calls, count: int) -> None:
        self._calls = calls
        self._count = count

    def unary(self, operation: str, given: Value, *, low: float = -np.inf) -> Value:
        """Append an operation of `UNARY`; return its result, which is at least `low`."""
        made = self._calls.temporary(4 * self._count)
        integers = {"count": self._count, "operation": UNARY.index(operation)}
        floats = activation_floats(0) | {"alpha": 0.0, "low": low}
        self._calls.add("unary_float", {"input": given, "output": made}, integers, floats, [given])
        return made

    def binary(self, operation: str, first: Value | float, second: Value | float, output: Value | None = None) -> Value:
        """Append an operation of `BINARY` on values or numbers; return its result, in new memory unless told where."""
        made = output or self._calls.temporary(4 * self._count)
        integers = {f"size_{i}": self._count if i == 3 else 1 for i in range(4)}
        values = {}
        for side, one in (("first", first), ("second", second)):
            is_number = isinstance(one, float)
            values[side] = self._calls.constant(np.array([one], np.float32)) if isinstance(one, float) else one
            integers |= {f"{side}_{i}": int(i == 3 and not is_number) for i in range(4)}
        operands = [one for one in (first, second) if not isinstance(one, float)]
        integers["operation"] = BINARY.index(operation)
        self._calls.add("binary_float", {**values, "output": made}, integers, activation_floats(0), operands)
        return made
