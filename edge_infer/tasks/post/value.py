"""`post.value`: the one number that a model gives, such as a regression's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"tensor": Parameter("text", None)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that gives the number."""
    read = reader(parameters["tensor"], place, "post.value")

    def apply(value: Any, item: Item) -> float:  # noqa: ARG001
        numbers = flat(read(value))
        if len(numbers) != 1:
            raise InputError(f"the model gives {len(numbers)} numbers, expected 1", hint='{"step": "post.tensor"}')
        return float(numbers[0])

    return apply
