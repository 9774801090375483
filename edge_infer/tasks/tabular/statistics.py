"""A statistic of an expression over a table that is read in parts, for all rows or for each group.

Sums run in the order of the rows, whatever the parts are, so that the same table gives the same numbers. Deviations are
taken from the first value of each group, so that large numbers that differ little keep their digits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.tasks.tabular.evaluation import evaluate
from edge_infer.tasks.tabular.expression_tree import MAX_GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from edge_infer.tasks.tabular.table import Column


class Statistic:
    """A statistic; numpy counts it.

    Args:
        tree: `[STATISTIC, OF]`, or `["over", [STATISTIC, OF], BY]`.
    """

    def __init__(self, tree: list[Any]) -> None:
        is_grouped = tree[0] == "over"
        self._kind, self._of = tree[1] if is_grouped else tree
        self._by = tree[2] if is_grouped else None
        self._is_grouped = is_grouped
        self._codes: dict[Any, int] = {} if is_grouped else {None: 0}
        self._sums: dict[str, np.ndarray] = {}

    def add(self, columns: Mapping[str, Column], rows: int) -> None:
        """Count the rows of a part.

        Raises:
            InputError: The values are texts or infinite, or there are too many groups.
        """
        import numpy as np

        values = evaluate(self._of, columns, rows)
        if isinstance(values, list):
            if self._kind != "count":
                raise InputError(f"`{self._kind}` is of texts", hint="count() takes texts, the others numbers")
            values = np.array([math.nan if one is None else 1.0 for one in values])
        codes = self._groups(columns, rows)
        there = (codes >= 0) & ~np.isnan(values)
        values, codes = values[there], codes[there]
        if np.isinf(values).any():
            raise InputError(f"`{self._kind}` is of infinite numbers", hint="clip() them, or leave the rows out")
        self._add(values, codes)

    def _groups(self, columns: Mapping[str, Column], rows: int) -> np.ndarray:
        """Return the number of each row's group; -1 where it has none."""
        import numpy as np

        if not self._is_grouped:
            return np.zeros(rows, np.int64)
        keys, codes = evaluate(self._by, columns, rows), self._codes
        if isinstance(keys, list):
            found = [-1 if key is None else codes.setdefault(key, len(codes)) for key in keys]
            made = np.array(found, np.int64)
        else:
            known, places = np.unique(keys, return_inverse=True)
            numbers = [codes.setdefault(key, len(codes)) if math.isfinite(key) else -1 for key in known.tolist()]
            made = np.array(numbers, np.int64)[places] if rows else np.zeros(0, np.int64)
        if len(codes) > MAX_GROUPS:
            raise InputError(
                f"a statistic has more than {MAX_GROUPS} groups", hint="over() takes a column of fewer different values"
            )
        return made

    def _add(self, values: np.ndarray, codes: np.ndarray) -> None:
        import numpy as np

        for name, start in _STARTS.items():
            have = self._sums.get(name, np.zeros(0))
            self._sums[name] = np.concatenate([have, np.full(len(self._codes) - len(have), start)])
        sums = self._sums
        present, places = np.unique(codes, return_index=True)
        is_new = sums["count"][present] == 0
        sums["first"][present[is_new]] = values[places[is_new]]
        np.add.at(sums["count"], codes, 1.0)
        with np.errstate(over="ignore"):  # `tree` refuses what is too large
            away = values - sums["first"][codes]
            np.add.at(sums["sum"], codes, values)
            np.add.at(sums["away"], codes, away)
            np.add.at(sums["squares"], codes, away * away)
        np.minimum.at(sums["min"], codes, values)
        np.maximum.at(sums["max"], codes, values)

    def tree(self) -> Any:
        """Return what takes the statistic's place: a number, or a lookup of one by group.

        Raises:
            InputError: A statistic of the whole table has no value, or one is too large for float64.
        """
        import numpy as np

        if not self._sums:
            self._add(np.zeros(0), np.zeros(0, np.int64))
        numbers = self._numbers().tolist()
        if any(map(math.isinf, numbers)):
            raise InputError(f"a {self._kind} is too large for float64", hint="scale the column")
        if not self._is_grouped:
            if math.isnan(numbers[0]):
                raise InputError(f"`{self._kind}` has no value: the table has too few", hint="fill_null() comes first")
            return numbers[0]
        known = [(key, number) for key, number in zip(self._codes, numbers, strict=True) if not math.isnan(number)]
        return ["lookup", self._by, [key for key, _ in known], [number for _, number in known]]

    def _numbers(self) -> np.ndarray:
        import numpy as np

        sums, count = self._sums, self._sums["count"]
        if self._kind in ("count", "sum"):
            return sums[self._kind]
        with np.errstate(all="ignore"):
            if self._kind == "mean":
                found = sums["first"] + sums["away"] / count
            elif self._kind == "std":
                spread = sums["squares"] - sums["away"] * sums["away"] / count
                spread[~np.isfinite(spread) & (count > 0)] = np.inf
                found = np.where(count > 1, np.sqrt(np.maximum(spread, 0.0) / (count - 1.0)), np.nan)
            else:
                found = sums[self._kind]
        return np.where(count > 0, found, np.nan)


_STARTS = {
    "count": 0.0,
    "sum": 0.0,
    "first": 0.0,
    "away": 0.0,
    "squares": 0.0,
    "min": math.inf,
    "max": -math.inf,
}
