"""`post.tensor`: one output of the model, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {"tensor": Parameter("text", None)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that chooses the output."""
    read = reader(parameters["tensor"], place, "post.tensor")

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        return read(value)

    return apply
