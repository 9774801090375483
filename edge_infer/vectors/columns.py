"""The metadata of entries by name, as columns of a segment, and which rows a filter lets through.

A column holds whole and real numbers as float64, NaN where an entry has none; or, where other values than numbers
occur, a number for each entry into a list of its different values. Lists, objects and null are in no column.
"""

from __future__ import annotations

import json
from array import array
from math import isfinite, nan
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BundleError, InputError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Test = Callable[[Any], bool]

MISSING = 0xFFFFFFFF
_MAX_WHOLE = 2**53
OPERATIONS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")


class Column(NamedTuple):
    """One name's values.

    Attributes:
        data: Float64 for numbers, else 32-bit numbers into `values`, `MISSING` where an entry has none.
        values: The different values as a JSON list; None for a column of numbers.
    """

    data: memoryview
    values: bytes | None


def make_columns(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Put the metadata of entries into columns.

    Raises:
        InputError: A name is no text, or a number is not finite or larger than JavaScript's whole numbers.
    """
    names: dict[str, None] = {}
    for row, one in enumerate(metadata):
        for name, value in one.items():
            _check(name, value, row)
            if isinstance(value, (str, int, float)):
                names[name] = None
    return {name: _column([one.get(name) for one in metadata]) for name in sorted(names)}


def _check(name: object, value: object, row: int) -> None:
    if not isinstance(name, str):
        raise InputError(f"the metadata of entry {row} have the name {name!r}", hint="names are texts", row=row)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and (not isfinite(value) or (isinstance(value, int) and abs(value) > _MAX_WHOLE)):  # type: ignore[arg-type]
        raise InputError(
            f"the metadata of entry {row} have the number {value} as `{name}`",
            hint="give a finite number up to 2^53, or a text",
            row=row,
        )


def _column(values: Sequence[Any]) -> Column:
    scalars = [value if isinstance(value, (str, int, float)) else None for value in values]
    numbers = [nan if value is None else value for value in scalars if not isinstance(value, (str, bool))]
    if len(numbers) == len(scalars):
        return Column(memoryview(array("d", numbers)), None)
    # True and 1 are equal to Python, so they are told apart by their kind.
    codes: dict[tuple[str, Any], int] = {}
    data = array(
        "I",
        [MISSING if value is None else codes.setdefault((kind_of(value), value), len(codes)) for value in scalars],
    )
    text = json.dumps([value for _, value in codes], ensure_ascii=False, separators=(",", ":"))
    return Column(memoryview(data), text.encode())


def kind_of(value: object) -> str:
    """Return `number`, `text` or `bool`: values of different kinds are never equal, and none is above the other."""
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


class Filter:
    """What entries must be like: each name of `where` with a value, a list of values, or operations.

    Args:
        where: Such as `{"lang": "en", "year": {">=": 2020, "<": 2024}, "tag": ["a", "b"]}`. An entry that lacks the
            name does not pass, whatever the operation is.
        known: The names of all columns, for the error where one is unknown.

    Raises:
        InputError: A name or an operation is unknown, or a value cannot be compared.
    """

    def __init__(self, where: Mapping[str, Any], known: Sequence[str]) -> None:
        self._tests: dict[str, Test] = {}
        for name, condition in where.items():
            if name not in known:
                hint = did_you_mean(name, [*known]) or f"the entries have {listed([*known])}"
                raise InputError(f"no entry has `{name}` in its metadata", hint=hint, allowed=[*known])
            self._tests[name] = _test(name, condition)

    def mask(self, columns: Mapping[str, Column], count: int) -> bytes:
        """Return a byte for each row of a segment, 1 where it passes."""
        passed = b"\1" * count
        for name, test in self._tests.items():
            if name not in columns:
                return bytes(count)
            passed = both(passed, _passing(name, columns[name], test))
        return passed


def both(first: bytes, second: bytes) -> bytes:
    """Return the bytes that are 1 in both."""
    joined = int.from_bytes(first, "little") & int.from_bytes(second, "little")
    return joined.to_bytes(len(first), "little")


def _passing(name: str, column: Column, test: Test) -> bytes:
    if column.values is None:
        return bytes(value == value and test(value) for value in column.data)
    try:
        values = json.loads(column.values)
        passes = [test(value) for value in values]
        return bytes(code != MISSING and passes[code] for code in column.data)
    except (ValueError, IndexError, TypeError, RecursionError) as error:
        raise BundleError(
            f"the column `{name}` of the index is damaged: {error}", hint="build the index again"
        ) from error


def _test(name: str, condition: Any) -> Test:
    if isinstance(condition, (list, tuple, set, frozenset)):
        return _operation(name, "in", list(condition))
    if not isinstance(condition, dict):
        return _operation(name, "==", condition)
    tests = [_operation(name, operation, value) for operation, value in condition.items()]
    return lambda value: all(test(value) for test in tests)


def _operation(name: str, operation: str, wanted: Any) -> Test:
    if operation not in OPERATIONS:
        raise InputError(
            f"`{name}` is compared by {operation!r}", hint=f"use {listed([*OPERATIONS])}", allowed=[*OPERATIONS]
        )
    several = wanted if operation in ("in", "not in") else [wanted]
    if not isinstance(several, list) or not all(isinstance(one, (str, int, float)) for one in several):
        raise InputError(f"`{name}` is compared with {wanted!r}", hint="use a text, a number, or true or false")
    keys = {(kind_of(one), one) for one in several}
    if operation in ("==", "in"):
        return lambda value: (kind_of(value), value) in keys
    if operation in ("!=", "not in"):
        return lambda value: (kind_of(value), value) not in keys
    kind = kind_of(wanted)
    tests: dict[str, Test] = {
        "<": lambda value: value < wanted,
        "<=": lambda value: value <= wanted,
        ">": lambda value: value > wanted,
        ">=": lambda value: value >= wanted,
    }
    compare = tests[operation]
    return lambda value: kind_of(value) == kind and compare(value)
