"""`tabular.clip`: numbers kept between two bounds, for some columns."""

from __future__ import annotations

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

_STEP = "tabular.clip"
PARAMETERS = {"columns": Parameter("texts"), "low": Parameter("numbers"), "high": Parameter("numbers")}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that clips; NaN stays NaN.

    Raises:
        ManifestError: There are not two bounds for each column.
    """
    names, lows, highs = parameters["columns"], parameters["low"], parameters["high"]
    check_lengths(_STEP, names, low=lows, high=highs)

    def apply(table: Table, item: Item) -> Table:  # noqa: ARG001
        for name, low, high in zip(names, lows, highs, strict=True):
            bounds = {"low": low, "high": high}
            table.map(name, _STEP, partial(_by_numpy, **bounds), partial(_plain, **bounds))
        return table

    return apply


def _by_numpy(numbers: Any, low: float, high: float) -> Any:
    import numpy as np

    return np.clip(numbers, low, high)


def _plain(number: float, low: float, high: float) -> float:
    if number < low:
        return low
    return high if number > high else number
