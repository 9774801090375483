"""`tabular.tensor`: the columns side by side as the one input of a model, a row of numbers for each row."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tensors.arrays import has_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.parameters import Parameter
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tasks.tabular.table import Table

PARAMETERS: dict[str, Parameter] = {}
_CODES = {DType.FLOAT32: "f", DType.FLOAT64: "d"}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes a tensor [columns] of one row, and [rows, columns] of a table.

    Raises:
        ManifestError: The input is neither float32 nor float64.
    """
    spec = place.spec()
    if spec.dtype not in _CODES:
        raise ManifestError(
            f"pipeline: `tabular.tensor` makes float32 or float64, and input `{spec}` is not",
            hint="convert a model that takes float32",
        )
    code = _CODES[spec.dtype]

    def apply(table: Table, item: Item) -> Tensor:  # noqa: ARG001
        width = spec.shape[-1] if spec.shape else 0
        if isinstance(width, int) and width != len(table.columns):
            raise ManifestError(
                f"pipeline: input `{spec}` has {width} columns, and the steps {len(table.columns)}",
                hint=f"name {width} columns in `tabular.columns`",
            )
        for name, values in table.columns.items():
            if isinstance(values, list):
                raise ManifestError(
                    f"pipeline: the column `{name}` holds texts", hint="`tabular.categories` makes numbers of them"
                )
        shape = (len(table.columns),) if table.is_row else (table.rows, len(table.columns))
        data = _by_numpy(table, code) if has_numpy() and not table.is_row else _plain(table, code)
        return Tensor(data, spec.dtype, shape)

    return apply


def _by_numpy(table: Table, code: str) -> Any:
    import numpy as np

    made = np.empty((table.rows, len(table.columns)), code)
    with np.errstate(over="ignore"):
        for place, values in enumerate(table.columns.values()):
            made[:, place] = np.asarray(values)
    if code == "f" and np.isinf(made).any():
        for name, values in table.columns.items():
            numbers = np.asarray(values)
            with np.errstate(over="ignore"):
                wide = np.isinf(numbers.astype("f4")) & ~np.isinf(numbers)
            for row in np.nonzero(wide)[0].tolist():
                table.reject(row, f"`{name}` becomes {numbers[row]}, too large for float32", _HINT)
    return made


_HINT = "numbers of at most 3.4e38"


def _plain(table: Table, code: str) -> array[float]:
    made: array[float] = array("f" if code == "f" else "d")
    columns = list(table.columns.items())
    for row in range(table.rows):
        for name, values in columns:
            number = values[row]
            if code == "f" and math.isfinite(number) and abs(number) >= _TOO_LARGE:
                table.reject(row, f"`{name}` becomes {number}, too large for float32", _HINT)
                number = math.nan
            made.append(number)
    return made


#: From here on a float64 rounds to infinity in float32: the largest float32 and half a step.
_TOO_LARGE = (2 - 2**-24) * 2.0**127
