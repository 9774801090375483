"""The values of an expression for the rows of a table: whole columns by numpy, or number by number without it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.tabular.plain_operators import OPERATORS as PLAIN
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.tasks.tabular.table import Column

#: What has a meaning for texts too.
_OF_TEXTS = ("==", "!=", "fill_null", "is_null", "length", "when")


def evaluate(tree: Any, columns: Mapping[str, Column], rows: int) -> Column:
    """Return the values of a checked expression: float64 numbers with NaN for missing ones, or texts.

    Args:
        tree: The expression.
        columns: The columns by name, all that it names.
        rows: How many rows there are.

    Raises:
        ManifestError: An operator for numbers is given texts, or one for texts numbers.
    """
    way = (_Numpy if has_numpy() and _has_operators() else _Plain)(columns, rows)
    found = way.value(tree)
    return found if isinstance(found, list) else way.finished(found)


@cache
def _has_operators() -> bool:
    """Tell whether the operators of numpy are there: in a page that loaded numpy they come with the wheel only."""
    try:
        import edge_infer.tasks.tabular.numpy_operators  # noqa: F401
    except ImportError:
        return False
    return True


def _of_texts(word: str, said: str) -> ManifestError:
    hint = "make numbers of the texts first, by `lookup`"
    return ManifestError(f"pipeline: `{word}` of an expression {said}", hint=hint, field=word)


class _Way(ABC):
    """What both ways of computing have in common: the walk over the parts, and texts."""

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        self.columns, self.rows = columns, rows

    def value(self, tree: Any) -> Any:
        """Return the values of a part."""
        if tree is None or not isinstance(tree, list):
            return self.constant(math.nan if tree is None else float(tree))
        word, *given = tree
        if word == "col":
            found = self.columns[given[0]]
            return found if isinstance(found, list) else self.numbers(found)
        if word == "text":
            return [given[0]] * self.rows
        if word == "lookup":
            return self._looked_up(self.value(given[0]), given[1], given[2])
        if word == "clip":
            low, high = (end if one is None else float(one) for one, end in zip(given[1:], _ENDS, strict=True))
            return self.clip(self._of_numbers(word, self.value(given[0])), low, high)
        values = [self.value(one) for one in given]
        first = 1 if word == "when" else 0
        if any(isinstance(one, list) for one in values[first:]):
            for place in range(first, len(given)):
                if given[place] is None:  # beside texts it is a missing text
                    values[place] = [None] * self.rows
            return self._texts(word, values, [isinstance(one, list) for one in values[first:]])
        if word == "length":
            raise ManifestError(
                "pipeline: `length` of an expression takes texts, and is given numbers",
                hint="give it a column of the type `string`",
                field=word,
            )
        for one in values:
            self._of_numbers(word, one)
        return self.apply(word, values)

    def _of_numbers(self, word: str, values: Any) -> Any:
        if isinstance(values, list):
            raise _of_texts(word, "takes numbers, and is given texts")
        return values

    def _texts(self, word: str, values: list[Any], are_texts: list[bool]) -> Any:
        if word not in _OF_TEXTS or not all(are_texts):
            given = "texts" if all(are_texts) else "texts and numbers"
            kinds = "all numbers or all texts" if word in _OF_TEXTS else "numbers"
            raise _of_texts(word, f"is given {given}, expected {kinds}")
        if word == "is_null":
            return self.numbers([float(one is None) for one in values[0]])
        if word == "length":
            return self.numbers([math.nan if one is None else float(len(one)) for one in values[0]])
        if word == "fill_null":
            return [b if a is None else a for a, b in zip(*values, strict=True)]
        if word == "when":
            chosen = self.truths(self._of_numbers(word, values[0]))
            return [a if one else b for one, a, b in zip(chosen, values[1], values[2], strict=True)]
        is_equal = word == "=="
        return self.numbers(
            [math.nan if a is None or b is None else float((a == b) == is_equal) for a, b in zip(*values, strict=True)]
        )

    def _looked_up(self, asked: Any, keys: list[Any], values: list[Any]) -> Any:
        if isinstance(asked, list) != (bool(keys) and isinstance(keys[0], str)) and keys:
            held, other = ("texts", "numbers") if isinstance(asked, list) else ("numbers", "texts")
            raise ManifestError(
                f"pipeline: a `lookup` has keys that are {other}, and its column holds {held}",
                hint=f"write its keys as {held}",
                field="lookup",
            )
        if not isinstance(asked, list):
            return self.found_in(keys, values, asked)
        known = dict(zip(keys, values, strict=True))
        return self.numbers([math.nan if one is None else float(known.get(one, math.nan)) for one in asked])

    @abstractmethod
    def constant(self, number: float) -> Any:
        """Return a column of one number."""

    @abstractmethod
    def numbers(self, values: Any) -> Any:
        """Return a column of numbers."""

    @abstractmethod
    def apply(self, word: str, values: list[Any]) -> Any:
        """Apply an operator to columns of numbers."""

    @abstractmethod
    def clip(self, values: Any, low: float, high: float) -> Any:
        """Return values within two ends."""

    @abstractmethod
    def truths(self, values: Any) -> list[bool]:
        """Tell of each value whether it is a number other than 0."""

    @abstractmethod
    def found_in(self, keys: list[float], values: list[float], asked: Any) -> Any:
        """Return the value of each key that was asked for; NaN where there is none."""

    @abstractmethod
    def finished(self, values: Any) -> Any:
        """Return values of which each missing one is the same NaN."""


_ENDS = (-math.inf, math.inf)


class _Numpy(_Way):
    def constant(self, number: float) -> Any:
        import numpy as np

        return np.full(self.rows, number)

    def numbers(self, values: Any) -> Any:
        import numpy as np

        return np.asarray(values, np.float64)

    def apply(self, word: str, values: list[Any]) -> Any:
        import numpy as np

        from edge_infer.tasks.tabular.numpy_operators import OPERATORS

        with np.errstate(all="ignore"):
            return OPERATORS[word](*values)

    def clip(self, values: Any, low: float, high: float) -> Any:
        return self.apply("clip", [values, low, high])

    def truths(self, values: Any) -> list[bool]:
        return [one != 0 and one == one for one in values.tolist()]

    def found_in(self, keys: list[float], values: list[float], asked: Any) -> Any:
        from edge_infer.tasks.tabular.numpy_operators import found_in

        return found_in(keys, values, asked)

    def finished(self, values: Any) -> Any:
        import numpy as np

        return np.where(np.isnan(values), np.nan, values)


class _Plain(_Way):
    def constant(self, number: float) -> Any:
        return array("d", repeat(number, self.rows))

    def numbers(self, values: Any) -> Any:
        return values if isinstance(values, array) else array("d", values)

    def apply(self, word: str, values: list[Any]) -> Any:
        return array("d", map(PLAIN[word], *values))

    def clip(self, values: Any, low: float, high: float) -> Any:
        return array("d", map(PLAIN["clip"], values, repeat(low), repeat(high)))

    def truths(self, values: Any) -> list[bool]:
        return [one != 0 and one == one for one in values]

    def found_in(self, keys: list[float], values: list[float], asked: Any) -> Any:
        known = dict(zip(map(float, keys), values, strict=True))
        return array("d", (float(known.get(one, math.nan)) for one in asked))

    def finished(self, values: Any) -> Any:
        return array("d", (math.nan if one != one else one for one in values))
