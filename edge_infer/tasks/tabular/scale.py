"""`tabular.scale`: `(x - mean) / scale` in float64, for some columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.tabular.table import check_lengths

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tasks.tabular.table import Table

_STEP = "tabular.scale"
PARAMETERS = {"columns": Parameter("texts"), "mean": Parameter("numbers"), "scale": Parameter("numbers")}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that scales.

    Raises:
        ManifestError: There is not one number for each column, or a scale is zero.
    """
    names, means, scales = parameters["columns"], parameters["mean"], parameters["scale"]
    check_lengths(_STEP, names, mean=means, scale=scales)
    if 0 in scales:
        raise ManifestError(
            f"pipeline: `{_STEP}` has the scale 0 for `{names[scales.index(0)]}`, expected another number",
            hint="write 1 for a column that is always the same",
            field="scale",
        )

    def apply(table: Table, item: Item) -> Table:  # noqa: ARG001
        for name, mean, scale in zip(names, means, scales, strict=True):
            change = partial(_scaled, mean=mean, scale=scale)
            table.map(name, _STEP, change, change)
        return table

    return apply


def _scaled(x: Any, mean: float, scale: float) -> Any:
    return (x - mean) / scale
