"""`post.label`: the class that a model itself chooses, without a score: `[{"label"}]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"tensor": Parameter("text", None)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that gives the class: its name where the output has texts, else its number as text."""
    read = reader(parameters["tensor"], place, "post.label")

    def apply(value: Any, item: Item) -> list[dict[str, str]]:  # noqa: ARG001
        found = read(value).reshape(-1).tolist()
        if len(found) != 1:
            raise InputError(f"the model gives {len(found)} classes, expected 1", hint='{"step": "post.top_k"}')
        return [{"label": str(found[0])}]

    return apply
