"""Raw tables: an object of values is one row, an object of lists is a table of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.tasks.place import Place

_OF_FILES = "edge-infer predict model.bundle rows.csv -o answers.csv; or predict_table(pandas.read_csv(PATH))"
_HINT = '{"age": 41, "city": "Bern"}, or {"age": [41, 52], "city": ["Bern", "Chur"]}'


def rows_of(value: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:  # noqa: ARG001
    """Return the rows of a raw table.

    Raises:
        InputError: It is neither a row nor a table, or its columns differ in length.
    """
    if not isinstance(value, dict) or not value or not all(isinstance(name, str) for name in value):
        hint = _OF_FILES if isinstance(value, str) else _HINT
        raise InputError(f"{type(value).__name__} is neither a row nor a table", hint=hint, got=type(value).__name__)
    if not is_table(value):
        return [value]
    lengths = {name: len(column) if _is_column(column) else -1 for name, column in value.items()}
    first, rows = next((name, length) for name, length in lengths.items() if length >= 0)
    for name, length in lengths.items():
        if length != rows or length < 0:
            said = "one value" if length < 0 else f"{length} values"
            raise InputError(f"column `{name}` has {said}, and `{first}` has {rows}", hint="give columns of one length")
    columns = {name: column.tolist() if hasattr(column, "tolist") else list(column) for name, column in value.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def answer_of(answers: list[Any], value: Any, arguments: Mapping[str, Any], place: Place) -> Any:  # noqa: ARG001
    """Return the answer to one row, or the list of those to the rows of a table."""
    return answers if is_table(value) else answers[0]


def is_table(value: Mapping[str, Any]) -> bool:
    """Tell whether an object holds columns, and not the values of one row."""
    return any(map(_is_column, value.values()))


def _is_column(value: Any) -> bool:
    if isinstance(value, (str, bytes, dict)):
        return False
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) == 1
