"""Encoders of categories as trees over the numbers of the categories, one node of ONNX-ML.

What a fitted encoder gives is asked for each category of each column; no attribute of it is read. So every encoder
that treats its columns one by one can be written, with all of its options, and a whole chain of such steps too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: How many rows of several categories at once prove that the columns are independent.
_PROOFS = 64
#: A text that is no category of any column.
UNKNOWN = "\x00unknown"
_LARGEST = float(np.finfo(np.float32).max)


class Values(NamedTuple):
    """What a column of categories may hold.

    Attributes:
        known: The categories; their places are the numbers of the column.
        missing: What stands for a missing value.
    """

    known: list[Any]
    missing: Any = float("nan")

    @property
    def unknown(self) -> Any:
        """A value that is no category."""
        return UNKNOWN if any(isinstance(one, str) for one in self.known) or not self.known else -(2.0**40)

    @property
    def every(self) -> list[Any]:
        """The categories, then an unknown one and a missing one."""
        return [*self.known, self.unknown, self.missing]


class Lookup:
    """A fitted encoder as a table; it stands in for the encoder while the estimator is exported.

    Attributes:
        columns: For each column of the output the column of the input that it depends on; -1 for none.
        tables: For each column of the input its rows: what each category gives, an unknown one and a missing one.
        constants: What the columns without a source hold.
        raises: For each column of the input whether an unknown and a missing value are errors.
    """

    def __init__(
        self, columns: list[int], tables: list[np.ndarray], constants: np.ndarray, raises: list[tuple[bool, bool]]
    ) -> None:
        self.columns, self.tables, self.constants, self.raises = columns, tables, constants, raises

    @property
    def width(self) -> int:
        """How many numbers a row of the output has."""
        return len(self.columns)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


def tabulated(transform: Callable[[list[list[Any]]], Any], columns: Sequence[Values]) -> Lookup | None:
    """Ask an encoder what it gives for each category.

    Args:
        transform: Returns the encoder's rows for rows of values.
        columns: The values of each column that it takes.

    Returns:
        None where its columns depend on each other, or where it takes no row at all.
    """
    base = _base(transform, columns)
    if base is None:
        return None
    start = _rows(transform, [base])[0]
    if start is None:
        return None
    tables, raises = [], []
    varies = np.zeros((len(columns), len(start)), bool)
    for place, values in enumerate(columns):
        rows = [[*base[:place], value, *base[place + 1 :]] for value in values.every]
        found = _rows(transform, rows)
        raises.append((found[-2] is None, found[-1] is None))
        table = np.array([np.full(len(start), np.nan) if one is None else one for one in found])
        known = np.array([one for one in found if one is not None])
        varies[place] = ~np.isclose(known, start, rtol=0, atol=0, equal_nan=True).all(0)
        tables.append(table)
    if (varies.sum(0) > 1).any():
        return None
    sources = [int(one.argmax()) if one.any() else -1 for one in varies.T]
    made = Lookup(sources, tables, start, raises)
    return made if _is_proven(made, transform, columns) else None


def _base(transform: Callable[[list[list[Any]]], Any], columns: Sequence[Values]) -> list[Any] | None:
    """Return a row that the encoder takes: of the first categories, or else of any."""
    chance = np.random.default_rng(1)
    row = [values.every[0] for values in columns]
    for _ in range(_PROOFS):
        if _rows(transform, [row])[0] is not None:
            return row
        row = [values.every[int(chance.integers(len(values.every)))] for values in columns]
    return None


def _rows(transform: Callable[[list[list[Any]]], Any], rows: list[list[Any]]) -> list[np.ndarray | None]:
    """Return the answer to each row; None where it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown categories, which is what is asked
            found = transform(rows)
        found = found.toarray() if hasattr(found, "toarray") else found
        return list(np.asarray(found, np.float64).reshape(len(rows), -1))
    except (ValueError, TypeError, KeyError):
        if len(rows) == 1:
            return [None]
        return [_rows(transform, [row])[0] for row in rows]


def _is_proven(made: Lookup, transform: Callable[[list[list[Any]]], Any], columns: Sequence[Values]) -> bool:
    chance = np.random.default_rng(2)
    places = [
        [int(chance.integers(len(one.every) - raises[0] - raises[1])) for one, raises in zip(columns, made.raises)]  # noqa: B905
        for _ in range(_PROOFS)
    ]
    found = _rows(transform, [[one.every[i] for one, i in zip(columns, row, strict=True)] for row in places])
    for row, answer in zip(places, found, strict=True):
        if answer is None:
            continue
        ours = [
            made.constants[k] if source < 0 else made.tables[source][row[source], k]
            for k, source in enumerate(made.columns)
        ]
        if not np.array_equal(ours, answer, equal_nan=True):
            return False
    return True


def trees_of(made: Lookup) -> dict[str, Any]:
    """Return the attributes of a TreeEnsembleRegressor: a tree for each column, a leaf for each category.

    Categories are found by halving. A number below zero, or above all, is an unknown one; NaN passes every comparison
    as false and is the last leaf.
    """
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    votes: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    base = np.where(np.array(made.columns) < 0, made.constants, 0.0)
    for tree, table in enumerate(made.tables):
        targets = [k for k, source in enumerate(made.columns) if source == tree]
        count = len(table) - 2

        def add(mode: str, value: float, tree: int = tree) -> int:
            number = sum(one == tree for one in nodes["nodes_treeids"][-1:]) and nodes["nodes_nodeids"][-1] + 1
            new = (tree, number, tree if mode != "LEAF" else 0, value, mode, 0, 0)
            for name, one in zip(names, new, strict=True):
                nodes[f"nodes_{name}"].append(one)
            return len(nodes["nodes_nodeids"]) - 1

        def leaf(row: int, tree: int = tree, table: np.ndarray = table, targets: Sequence[int] = targets) -> int:
            place = add("LEAF", 0.0)
            for k in targets:
                if table[row, k] != 0:
                    votes["target_treeids"].append(tree)
                    votes["target_nodeids"].append(nodes["nodes_nodeids"][place])
                    votes["target_ids"].append(k)
                    votes["target_weights"].append(float(table[row, k]))
            return place

        def branch(value: float, yes: Callable[[], int], no: Callable[[], int]) -> int:
            place = add("BRANCH_LEQ", value)
            for name, way in (("truenodeids", yes), ("falsenodeids", no)):
                nodes[f"nodes_{name}"][place] = nodes["nodes_nodeids"][way()]
            return place

        def halves(first: int, last: int) -> int:
            if last - first == 1:
                return leaf(first)
            middle = (first + last) // 2
            return branch(middle - 0.5, lambda: halves(first, middle), lambda: halves(middle, last))

        def above(count: int = count) -> int:
            return branch(_LARGEST, lambda: leaf(count), lambda: leaf(count + 1))

        def known(count: int = count) -> int:
            return branch(count - 0.5, lambda: halves(0, count), above) if count else above()

        branch(-0.5, lambda: leaf(count), known)  # noqa: B023  called at once
    if not votes["target_ids"]:  # no leaf gives anything: one vote of zero
        for name in votes:
            votes[name].append(0.0 if name == "target_weights" else 0)
        votes["target_nodeids"][0] = nodes["nodes_nodeids"][nodes["nodes_modes"].index("LEAF")]
    floats = {"nodes_values": nodes.pop("nodes_values"), "target_weights": votes.pop("target_weights")}
    return {
        **nodes,
        **votes,
        **{name: np.array(values, np.float32) for name, values in floats.items()},
        "n_targets": made.width,
        "base_values": base.astype(np.float32),
        "post_transform": "NONE",
    }
