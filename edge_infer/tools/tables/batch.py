"""A part of a table's file, and the lines of it that could not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Batch(NamedTuple):
    """Some rows of a file.

    Attributes:
        columns: The values by name: arrays of pyarrow or polars, or lists.
        rows: How many rows there are.
        numbers: The number of each row in the file, counted from 0, the unreadable ones included.
        unread: By number of a row why it could not be read.
        read: Returns a column as the steps take it, from its values, its name and its type.
    """

    columns: dict[str, Any]
    rows: int
    numbers: Sequence[int]
    unread: dict[int, str]
    read: Callable[[Any, str, str], Any]


def part(batch: Batch, start: int, stop: int) -> Batch:
    """Return some rows of a batch, without what could not be read."""
    columns = {name: values[start:stop] for name, values in batch.columns.items()}
    return batch._replace(columns=columns, rows=stop - start, numbers=batch.numbers[start:stop], unread={})
