"""Expressions over the columns of a table, written with Python's operators and computed later."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Value = float | str | bool | None

#: What is asked of a whole table, before single rows are computed.
STATISTICS = ("count", "sum", "mean", "std", "min", "max")


def col(name: str, dtype: str = "float64") -> Expression:
    """Return the expression that is a column.

    Args:
        name: Its name.
        dtype: `float64`, which takes all numbers, `int64`, `bool` or `string`.

    >>> debt_ratio = col("debt") / col("income").clip(0.1)
    >>> against_city = col("income") - col("income").mean().over("city")
    """
    return Expression(["col", name], {name: dtype})


class Expression:
    """Something to compute for each row of a table; `col` makes one.

    Expressions are added, subtracted, multiplied, divided and compared with one another, with numbers and with texts;
    `&`, `|` and `~` join truths, which are 1 and 0. A missing value makes what is computed of it missing.

    Attributes:
        tree: The expression as data.
        types: The type of each column that it names.
    """

    __slots__ = ("tree", "types")
    __hash__ = None  # type: ignore[assignment]  # `==` makes an expression, so that it is no key

    def __init__(self, tree: Any, types: Mapping[str, str]) -> None:
        self.tree = tree
        self.types = dict(types)

    def __repr__(self) -> str:
        return f"Expression({self.tree})"

    def __bool__(self) -> bool:
        raise InputError("an expression is neither true nor false", hint="write & for and, | for or, ~ for not")

    def _with(self, word: str, *others: Any, is_turned: bool = False) -> Expression:
        types = dict(self.types)
        trees = [self.tree]
        for other in others:
            one = other if isinstance(other, Expression) else Expression(_literal(other), {})
            for name, dtype in one.types.items():
                if types.setdefault(name, dtype) != dtype:
                    raise InputError(f"the column `{name}` is {types[name]} and {dtype}", hint="give it one type")
            trees.append(one.tree)
        return Expression([word, *(trees[::-1] if is_turned else trees)], types)

    def __add__(self, other: Expression | float) -> Expression:
        return self._with("+", other)

    def __radd__(self, other: float) -> Expression:
        return self._with("+", other, is_turned=True)

    def __sub__(self, other: Expression | float) -> Expression:
        return self._with("-", other)

    def __rsub__(self, other: float) -> Expression:
        return self._with("-", other, is_turned=True)

    def __mul__(self, other: Expression | float) -> Expression:
        return self._with("*", other)

    def __rmul__(self, other: float) -> Expression:
        return self._with("*", other, is_turned=True)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self._with("/", other)

    def __rtruediv__(self, other: float) -> Expression:
        return self._with("/", other, is_turned=True)

    def __neg__(self) -> Expression:
        return self._with("neg")

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # as in polars
        return self._with("==", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # as in polars
        return self._with("!=", other)

    def __lt__(self, other: Expression | float) -> Expression:
        return self._with("<", other)

    def __le__(self, other: Expression | float) -> Expression:
        return self._with("<=", other)

    def __gt__(self, other: Expression | float) -> Expression:
        return self._with(">", other)

    def __ge__(self, other: Expression | float) -> Expression:
        return self._with(">=", other)

    def __and__(self, other: Expression) -> Expression:
        return self._with("&", other)

    def __or__(self, other: Expression) -> Expression:
        return self._with("|", other)

    def __invert__(self) -> Expression:
        return self._with("not")

    def abs(self) -> Expression:
        """Return it without its sign."""
        return self._with("abs")

    def log(self) -> Expression:
        """Return the natural logarithm; minus infinity of 0, missing below."""
        return self._with("log")

    def log1p(self) -> Expression:
        """Return ln(1 + x), exact for small x too."""
        return self._with("log1p")

    def sqrt(self) -> Expression:
        """Return the square root; missing of numbers below 0."""
        return self._with("sqrt")

    def floor(self) -> Expression:
        """Return the largest whole number that is not greater."""
        return self._with("floor")

    def clip(self, low: float | None = None, high: float | None = None) -> Expression:
        """Return it within bounds; None is no bound."""
        return Expression(["clip", self.tree, _literal(low), _literal(high)], self.types)

    def is_null(self) -> Expression:
        """Return 1 where the value is missing, else 0."""
        return self._with("is_null")

    def length(self) -> Expression:
        """Return how many characters a text has."""
        return self._with("length")

    def fill_null(self, value: Expression | Value) -> Expression:
        """Return it with another value in the place of a missing one."""
        return self._with("fill_null", value)

    def when(self, then: Expression | Value, otherwise: Expression | Value = None) -> Expression:
        """Return `then` where this is true, `otherwise` where it is false or missing."""
        return self._with("when", then, otherwise)

    def count(self) -> Expression:
        """Return how many rows of the table that is fitted have a value."""
        return self._with("count")

    def sum(self) -> Expression:
        """Return the sum over the table that is fitted."""
        return self._with("sum")

    def mean(self) -> Expression:
        """Return the mean over the table that is fitted."""
        return self._with("mean")

    def std(self) -> Expression:
        """Return the standard deviation over the table that is fitted, by n - 1."""
        return self._with("std")

    def min(self) -> Expression:
        """Return the least value in the table that is fitted."""
        return self._with("min")

    def max(self) -> Expression:
        """Return the greatest value in the table that is fitted."""
        return self._with("max")

    def over(self, by: str | Expression) -> Expression:
        """Return a statistic of the rows of the same group, and not of the whole table.

        Args:
            by: The column that names the group, of texts, or an expression. A group that the fitted table does not have
                gives a missing value.

        Raises:
            InputError: This is no statistic.
        """
        if not isinstance(self.tree, list) or self.tree[0] not in STATISTICS:
            raise InputError("`over` stands behind a statistic", hint='col("income").mean().over("city")')
        return self._with("over", col(by, "string") if isinstance(by, str) else by)


def _literal(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return ["text", value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        raise InputError(f"an expression takes numbers and texts, and not {type(value).__name__}", hint='col("name")')
    try:
        is_finite = math.isfinite(value)
    except OverflowError as error:
        raise InputError(
            "an expression takes no number of more than 1.8e308", hint="None is a missing value"
        ) from error
    if not is_finite:
        raise InputError(f"an expression takes no {value}", hint="None is a missing value")
    return value
