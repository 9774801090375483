"""`tabular.columns`: the columns of a model by name and type, in its order."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.tabular.table import Table, check_names
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tasks.tabular.table import Column

TYPES = ("float32", "float64", "int64", "bool", "string")
PARAMETERS = {
    "names": Parameter("texts"),
    # One of `float32`, `float64`, `int64`, `bool` and `string` for each name.
    "types": Parameter("texts"),
    # The columns of which a value may be missing: None, null or NaN.
    "nullable": Parameter("texts", []),
}
_STEP = "tabular.columns"
#: Whole numbers up to here are exact in float64.
_EXACT = 2**53
#: What a column may be given as: only casts that lose nothing. numpy's letters for the kinds of types.
_TAKES = {"float32": "fiub", "float64": "fiub", "int64": "iub", "bool": "b", "string": "UO"}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that finds each column and checks its values; further columns are ignored.

    Raises:
        ManifestError: There is not one known type for each name, or a name is there twice.
    """
    names, types, nullable = parameters["names"], parameters["types"], set(parameters["nullable"])
    check_names(_STEP, names, sorted(nullable), types=types)
    for one in types:
        if one not in TYPES:
            raise ManifestError(
                f"pipeline: `{_STEP}` has the type `{one}`, expected {listed(list(TYPES))}",
                hint=did_you_mean(one, list(TYPES)) or f"choose from {listed(list(TYPES))}",
                field="types",
            )

    def apply(value: Any, item: Item) -> Table:  # noqa: ARG001
        given = value if isinstance(value, Table) else Table({k: [v] for k, v in value.items()}, 1, is_row=True)
        missing = [name for name in names if name not in given.columns]
        if missing:
            hint = did_you_mean(missing[0], list(given.columns)) or f"the columns are {listed(names[:20])}"
            raise InputError(f"the column {listed(missing[:8])} is missing", hint=hint, missing=missing)
        made = Table({}, given.rows, is_row=given.is_row)
        made.rejected = given.rejected
        for name, kind in zip(names, types, strict=True):
            made.columns[name] = _column(given.columns[name], kind, name, made)
            check_missing(made.columns[name], name, made, is_nullable=name in nullable)
        return made

    return apply


def _column(values: Any, kind: str, name: str, table: Table) -> Column:
    """Return numbers as floats and texts as a list, after the check of their type.

    Raises:
        InputError: The type is another one.
    """
    if not isinstance(values, list) and hasattr(values, "dtype"):
        given = values.dtype.kind
        if given not in _TAKES[kind] and given != "O":
            raise wrong_type(name, values.dtype, kind)
        if given == "f":
            return values if values.dtype.itemsize == 4 else values.astype("f8", copy=False)
        if given in "iub":
            if values.dtype.itemsize == 8:
                for row in ((values > _EXACT) | (values < -_EXACT)).nonzero()[0].tolist():
                    table.reject(row, f"`{name}` is {values[row]}, which float64 does not hold exactly", _SMALLER)
            return values.astype("f8")
        values = values.tolist()
    if kind == "string":
        return [_text(one, row, name, table) for row, one in enumerate(values)]
    return array("d", [_number(one, kind, row, name, table) for row, one in enumerate(values)])


_SMALLER = "whole numbers of at most 2^53"


def wrong_type(name: str, got: object, kind: str) -> InputError:
    """Return the error for a column of another type."""
    return InputError(
        f"the column `{name}` is {got}, expected {kind} or what widens to it",
        hint="cast the column in the table, where you can see what it loses",
        expected=kind,
        got=str(got),
    )


def _text(value: Any, row: int, name: str, table: Table) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    table.reject(row, f"`{name}` is {_shown(value)}, expected a text", f'{{"{name}": "a text"}}')
    return None


def _number(value: Any, kind: str, row: int, name: str, table: Table) -> float:
    if value is None:
        return math.nan
    plain = value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value
    fits = isinstance(plain, bool) if kind == "bool" else isinstance(plain, (int, float))
    if fits and kind == "int64" and isinstance(plain, float):
        fits = math.isnan(plain) or plain.is_integer()
    if not fits:
        table.reject(row, f"`{name}` is {_shown(value)}, expected {kind}", f"give a number for `{name}`")
        return math.nan
    if isinstance(plain, int) and abs(plain) > _EXACT:
        table.reject(row, f"`{name}` is {plain}, which float64 does not hold exactly", _SMALLER)
        return math.nan
    return float(plain)


def check_missing(values: Column, name: str, table: Table, *, is_nullable: bool) -> None:
    """Reject the rows whose value is missing or infinite, where the column must have one."""
    if is_nullable:
        return
    hint = f"give a value for `{name}`, or leave the row out"
    if isinstance(values, list):
        bad = [row for row, one in enumerate(values) if one is None]
    elif has_numpy():
        import numpy as np

        bad = np.nonzero(~np.isfinite(np.asarray(values)))[0].tolist()
    else:
        bad = [row for row, one in enumerate(values) if not math.isfinite(one)]
    for row in bad:
        if table.rejected is not None and row in table.rejected:
            continue
        is_infinite = not isinstance(values, list) and math.isinf(values[row])
        table.reject(row, f"`{name}` is {'infinite' if is_infinite else 'missing'}", hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
