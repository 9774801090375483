"""Columns of one length on their way through a pipeline, and the rows that cannot go on."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, did_you_mean, listed
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    #: Numbers as float64, or float32 where a batch had them so, NaN for a missing one; or a list of texts, None for a
    #: missing one. An `array` or one of numpy.
    Column = Any


class Table:
    """Columns of one length.

    Attributes:
        columns: The values by name, in the order of the model.
        rows: How many there are.
        is_row: Whether one row was given by itself.
        rejected: By number of a row why it cannot go on; None where such a row is an error.
    """

    __slots__ = ("columns", "is_row", "rejected", "rows")

    def __init__(self, columns: dict[str, Column], rows: int, *, is_row: bool = False, rejects: bool = False) -> None:
        self.columns = columns
        self.rows = rows
        self.is_row = is_row
        self.rejected: dict[int, str] | None = {} if rejects else None

    def reject(self, row: int, reason: str, hint: str) -> None:
        """Leave a row out, for its first reason.

        Raises:
            InputError: The caller wants no row left out.
        """
        if self.rejected is not None:
            self.rejected.setdefault(row, reason)
            return
        where = "" if self.is_row or self.rows == 1 else f"row {row}: "
        raise InputError(f"{where}{reason}", hint=hint)

    def column(self, name: str, step: str) -> Column:
        """Return a column that a step names.

        Raises:
            ManifestError: The table has none of this name.
        """
        if name not in self.columns:
            known = list(self.columns)
            raise ManifestError(
                f"pipeline: `{step}` names the column `{name}`, which the steps before it do not",
                hint=did_you_mean(name, known) or f"choose from {listed(known[:20])}",
                field=name,
            )
        return self.columns[name]

    def map(self, name: str, step: str, by_numpy: Callable[[Any], Any], plain: Callable[[float], float]) -> None:
        """Replace the numbers of a column.

        Args:
            name: The column.
            step: The step that does it, for errors.
            by_numpy: Returns the new numbers from an array of float64.
            plain: Returns one from one.

        Raises:
            ManifestError: The table has no such column, or it holds texts.
        """
        values = self.column(name, step)
        if isinstance(values, list):
            raise ManifestError(
                f"pipeline: `{step}` takes numbers, and the column `{name}` holds texts",
                hint="`tabular.categories` makes numbers of them",
                field=name,
            )
        if has_numpy():
            import numpy as np

            self.columns[name] = by_numpy(np.asarray(values, np.float64))
        else:
            self.columns[name] = array("d", map(plain, values))


def check_lengths(step: str, columns: Sequence[str], **parameters: Sequence[float]) -> None:
    """Check that a step has a number for each column that it names.

    Raises:
        ManifestError: A list has another length.
    """
    for name, values in parameters.items():
        if len(values) != len(columns):
            raise ManifestError(
                f"pipeline: `{step}` has {len(columns)} `columns` and {len(values)} numbers in `{name}`, expected one "
                "for each",
                hint=f"write {len(columns)} numbers in `{name}`",
                field=name,
            )


def check_names(step: str, names: Sequence[str], nullable: Sequence[str], **parameters: Sequence[Any]) -> None:
    """Check that a step names each of its columns once, and has one of each parameter for it.

    Args:
        step: The step, for errors.
        names: Its columns.
        nullable: Those of them that may hold missing values.
        **parameters: The lists that go with the names.

    Raises:
        ManifestError: A name is there twice, a list has another length, or `nullable` names no column.
    """
    again = twice(names)
    for name, values in parameters.items():
        if len(values) != len(names) or not names or again is not None:
            found = f"{len(names)} `names` and {len(values)} `{name}`" if again is None else f"the name `{again}` twice"
            raise ManifestError(
                f"pipeline: `{step}` has {found}, expected each name once, and one of `{name}` for it",
                hint=f"write as many `{name}` as `names`" if again is None else "leave one of them out",
                field="names",
            )
    known = set(names)
    for one in nullable:
        if one not in known:
            raise ManifestError(
                f"pipeline: `{step}` has no column `{one}`, which `nullable` names",
                hint=did_you_mean(one, list(names)) or f'leave "{one}" out of "nullable"',
                field="nullable",
            )


def twice(values: Sequence[str | float]) -> str | float | None:
    """Return the first value that is there before; None where each is there once."""
    seen: set[str | float] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
