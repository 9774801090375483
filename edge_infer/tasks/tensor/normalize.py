"""`tensor.normalize`: the mean of the training data taken from each element, and the rest divided by its spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import flat, floats

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "mean": Parameter("real", 0.0),
    "std": Parameter("real", 1.0, low=1e-30),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes `(x - mean) / std` of each element, in float64 and rounded once to float32."""
    mean, std = parameters["mean"], parameters["std"]

    def apply(tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG001
        return floats([(value - mean) / std for value in flat(tensor)], tensor.shape)

    return apply
