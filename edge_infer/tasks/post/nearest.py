"""`post.nearest`: distances to scores, each the distance times -1: the nearest has the highest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat, floats

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {"tensor": Parameter("text", None)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that turns the distances' signs."""
    read = reader(parameters["tensor"], place, "post.nearest")

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        tensor = read(value)
        return floats((0.0 - one for one in flat(tensor)), tensor.shape)

    return apply
