"""The raw columns of a table that an estimator takes: their names, categories and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edge_infer_converters.sources.lookup import Values


class RawColumns:
    """The columns of a table, in the order of the estimator.

    Attributes:
        names: Their names; `x0`, `x1`, ... where the estimator has none.
        used: The places of those that something reads: the input of the model has these alone.
        values: By place the categories of those that become numbers of categories.
        unknown: By place whether an unknown category is an error.
        nullable: The places of those that may miss a value.
    """

    def __init__(self, estimator: Any, count: int) -> None:
        named = getattr(estimator, "feature_names_in_", None)
        self.has_names = named is not None
        self.names = [f"x{i}" for i in range(count)] if named is None else [str(name) for name in named]
        self.used: list[int] = []
        self.values: dict[int, Values] = {}
        self.unknown: dict[int, bool] = {}
        self.nullable: set[int] = set()

    def document(self) -> list[dict[str, Any]]:
        """Return the columns as `describe` writes them."""
        made: list[dict[str, Any]] = []
        for place in self.used:
            values = self.values.get(place)
            one: dict[str, Any] = {"name": self.names[place]}
            is_text = values is not None and any(isinstance(value, str) for value in values.known)
            one["dtype"] = "string" if is_text else "float64"
            if place in self.nullable:
                one["nullable"] = True
            if values is not None:
                one["categories"] = [_plain(value) for value in values.known]
                one["unknown"] = "error" if self.unknown.get(place, True) else "minus_one"
            made.append(one)
        return made

    def rows(self, numbers: np.ndarray) -> Any:
        """Return rows of the model's input as the estimator takes them, a data frame where its columns have names."""
        columns: list[Any] = []
        for place in range(len(self.names)):
            if place not in self.used:
                columns.append(np.zeros(len(numbers)))
                continue
            column = numbers[:, self.used.index(place)]
            values = self.values.get(place)
            columns.append(column if values is None else _values(column, values))
        if self.has_names:
            import pandas as pd

            made = {
                name: pd.Series(column, dtype=column.dtype) for name, column in zip(self.names, columns, strict=True)
            }
            return pd.DataFrame(made, columns=self.names)
        if any(column.dtype == object for column in columns):
            return np.stack([column.astype(object) for column in columns], 1)
        return np.stack(columns, 1)

    def drawn(self, count: int) -> np.ndarray:
        """Draw rows of the model's input: normal numbers, each category, unknown and missing ones where they may be."""
        chance = np.random.default_rng(0)
        made = chance.normal(size=(count, len(self.used))).astype(np.float32)
        for i, place in enumerate(self.used):
            if place in self.values:
                low = 0 if self.unknown.get(place, True) else -1
                made[:, i] = chance.integers(low, max(len(self.values[place].known), 1), count)
            if place in self.nullable:
                made[chance.random(count) < 0.1, i] = np.nan
        return made


def _values(column: np.ndarray, values: Values) -> np.ndarray:
    made = np.empty(len(column), object)
    for row, number in enumerate(column):
        if np.isnan(number):
            made[row] = values.missing
        else:
            nearest = int(np.ceil(number - 0.5)) if abs(number) < len(values.known) + 1 else -1
            made[row] = values.known[nearest] if 0 <= nearest < len(values.known) else values.unknown
    is_numbers = values.known and not any(isinstance(one, str) for one in values.known) and values.missing is not None
    return made.astype(np.float64) if is_numbers else made


def _plain(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain
