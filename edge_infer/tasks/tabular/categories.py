"""`tabular.categories`: the number of each category, counted from zero."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError, did_you_mean
from edge_infer.tasks.parameters import Parameter, shown
from edge_infer.tasks.tabular.table import twice

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tasks.tabular.table import Table

PARAMETERS = {
    # By column its categories, texts or numbers.
    "values": Parameter("lists"),
    # What an unknown category becomes: an error, NaN or -1.
    "unknown": Parameter("choice", "error", choices=("error", "missing", "minus_one")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that numbers categories; a missing value becomes NaN.

    Raises:
        ManifestError: A category is there twice.
    """
    numbers = {}
    for name, values in parameters["values"].items():
        numbers[name] = {value: float(i) for i, value in enumerate(values)}
        if len(numbers[name]) != len(values):
            again = shown(twice(values))
            raise ManifestError(
                f"pipeline: `tabular.categories` has the category {again} of `{name}` twice, expected each once",
                hint='leave one of them out of "values"',
                field=name,
            )
    other = {"missing": math.nan, "minus_one": -1.0}.get(parameters["unknown"])

    def apply(table: Table, item: Item) -> Table:  # noqa: ARG001
        for name, known in numbers.items():
            made = array("d")
            values = table.column(name, "tabular.categories")
            for row, value in enumerate(values if isinstance(values, (list, array)) else values.tolist()):
                found = known.get(value)
                if found is None:
                    is_missing = value is None or value != value
                    found = math.nan if is_missing else other
                if found is None:
                    hint = did_you_mean(str(value), [str(one) for one in known]) or _hint(list(known))
                    shown = f"{value!r:.60}"
                    table.reject(row, f"`{name}` is {shown}, which is not one of its {len(known)} categories", hint)
                    found = math.nan
                made.append(found)
            table.columns[name] = made
        return table

    return apply


def _hint(known: list[Any]) -> str:
    return f"choose from {', '.join(map(str, known[:8]))}{', ...' if len(known) > 8 else ''}"
