"""Features of a table: named expressions whose statistics were taken of one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, ManifestError
from edge_infer.platform.atomic_write import write_file
from edge_infer.tasks.item import Item
from edge_infer.tasks.steps import read_step
from edge_infer.tasks.tabular.expression import STATISTICS, Expression
from edge_infer.tasks.tabular.expression_tree import MAX_DEPTH, MAX_PARTS, check
from edge_infer.tasks.tabular.frames import columns_of, like
from edge_infer.tasks.tabular.statistics import Statistic
from edge_infer.tasks.tabular.table import Table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping


def fit_features(expressions: Mapping[str, Expression], table: Any) -> Features:
    """Take the statistics of expressions from a table.

    Args:
        expressions: The features by name, in the order of the model's columns.
        table: What `Pipeline.predict_table` takes, or an iterator of such tables, which is read once.

    Returns:
        The features, with each statistic as the number that it has in this table, or as a number for each group.

    Raises:
        InputError: A column is missing or of another type, a statistic is of a statistic, or it has no value.

    >>> from edge_infer import col
    >>> people = {"city": ["Bern", "Chur", "Bern"], "income": [5.0, 3.0, 7.0]}
    >>> features = fit_features({"more": col("income") - col("income").mean().over("city")}, people)
    >>> features.table(people)["more"].tolist()
    [-1.0, 0.0, 1.0]
    """
    types: dict[str, str] = {}
    found: dict[str, Statistic] = {}
    for name, one in expressions.items():
        if not isinstance(one, Expression):
            raise InputError(f"the feature `{name}` is {type(one).__name__}, expected an expression", hint='col("age")')
        for column, dtype in one.types.items():
            if types.setdefault(column, dtype) != dtype:
                raise InputError(f"the column `{column}` is {types[column]} and {dtype}", hint="give it one type")
        _check_size(one.tree, name)
        for tree in _statistics(one.tree):
            found.setdefault(json.dumps(tree), Statistic(tree))
    if not types:
        raise InputError("the features name no column", hint='{"age": col("age")}')
    read = read_step(_columns(types), "features").prepare(_NO_PLACE)
    for part in _tables(table) if found else ():
        columns, rows = columns_of(part, types)
        given: Table = read(Table(columns, rows), Item())
        for statistic in found.values():
            statistic.add(given.columns, rows)
    answers = {key: statistic.tree() for key, statistic in found.items()}
    fitted = {name: _fitted(one.tree, answers) for name, one in expressions.items()}
    for name, tree in fitted.items():
        _check(tree, f"the feature `{name}`")
    return Features(fitted, types)


class Features:
    """Named expressions without open statistics; `fit_features` makes them.

    Attributes:
        expressions: As data, by name.
        types: The columns that they name, with their types.
    """

    def __init__(self, expressions: Mapping[str, Any], types: Mapping[str, str]) -> None:
        self.expressions = dict(expressions)
        self.types = dict(types)
        self._steps = [read_step(step, "features").prepare(_NO_PLACE) for step in self.steps(is_free=True)]

    def steps(self, *, is_free: bool = False) -> list[dict[str, Any]]:
        """Return the steps of a pipeline that compute them, as a manifest writes them.

        Args:
            is_free: Whether features may be missing; else a row that lacks one has no answer.
        """
        names = list(self.expressions)
        derive = {"step": "tabular.derive", "names": names, "expressions": list(self.expressions.values())}
        return [_columns(self.types), derive | ({"nullable": names} if is_free else {})]

    def table(self, table: Any) -> Any:
        """Return the features of a table, to fit a model on.

        Args:
            table: What `Pipeline.predict_table` takes.

        Returns:
            A table of the same library; a dict of columns for one. Missing numbers are NaN.

        Raises:
            InputError: A column is missing or of another type.
        """
        columns, rows = columns_of(table, self.types)
        made = Table(columns, rows)
        for step in self._steps:
            made = step(made, Item())
        return like(table, made.columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them for `edge-infer convert --preprocess FILE.json`."""
        write_file(Path(path), (json.dumps({"features": self.steps()}, ensure_ascii=False) + "\n").encode())


#: These steps ask nothing of a bundle or a model.
_NO_PLACE: Any = None


def _columns(types: Mapping[str, str]) -> dict[str, Any]:
    names = list(types)
    return {"step": "tabular.columns", "names": names, "types": list(types.values()), "nullable": names}


def _tables(table: Any) -> Iterable[Any]:
    return table if hasattr(table, "__next__") else (table,)


def _statistics(tree: Any) -> list[list[Any]]:
    """Return the statistics in an expression.

    Raises:
        InputError: One is of another.
    """
    if not isinstance(tree, list):
        return []
    if tree[0] in STATISTICS or tree[0] == "over":
        inside = tree[1][1:] + tree[2:] if tree[0] == "over" else tree[1:]
        if any(_statistics(one) for one in inside):
            raise InputError(
                f"`{tree[0]}` is of another statistic", hint="fit the inner one first, and give its table to the outer"
            )
        for one in inside:
            _check(one, "the expression")
        return [tree]
    return [found for one in tree[1:] for found in _statistics(one)]


def _check_size(tree: Any, name: str) -> None:
    """Refuse an expression that is too large, before it is walked: one that names itself often is large unseen.

    Raises:
        InputError: It is.
    """
    left, parts = [(tree, 0)], 0
    while left:
        part, depth = left.pop()
        parts += 1
        if parts > MAX_PARTS or depth > MAX_DEPTH:
            raise InputError(
                f"the feature `{name}` is too large: at most {MAX_PARTS} parts, and {MAX_DEPTH} inside one another",
                hint="`(a + b) + (c + d)` is less deep than `a + b + c + d`",
            )
        left += [(one, depth + 1) for one in part[1:] if isinstance(one, list)]


def _check(tree: Any, where: str) -> None:
    try:
        check(tree, where)
    except ManifestError as error:
        raise InputError(error.message, hint=error.hint) from error


def _fitted(tree: Any, answers: Mapping[str, Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    if tree[0] in STATISTICS or tree[0] == "over":
        return answers[json.dumps(tree)]
    return [tree[0], *(_fitted(one, answers) for one in tree[1:])]
