"""`tabular.impute`: a number in the place of each missing one."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.tabular.table import check_lengths

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tasks.tabular.table import Table

_STEP = "tabular.impute"
PARAMETERS = {"columns": Parameter("texts"), "values": Parameter("numbers")}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that fills the columns up.

    Raises:
        ManifestError: There is not one number for each column.
    """
    names, values = parameters["columns"], parameters["values"]
    check_lengths(_STEP, names, values=values)

    def apply(table: Table, item: Item) -> Table:  # noqa: ARG001
        for name, value in zip(names, values, strict=True):
            table.map(name, _STEP, partial(_by_numpy, value=value), partial(_plain, value=value))
        return table

    return apply


def _by_numpy(numbers: Any, value: float) -> Any:
    import numpy as np

    return np.where(np.isnan(numbers), value, numbers)


def _plain(number: float, value: float) -> float:
    return value if math.isnan(number) else number
