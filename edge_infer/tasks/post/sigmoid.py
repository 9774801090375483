"""`post.sigmoid`: logits to probabilities, each on its own."""

from __future__ import annotations

import math
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
    """Return the function: `1 / (1 + exp(-x))` in float64, rounded once to float32."""
    read = reader(parameters["tensor"], place, "post.sigmoid")

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        tensor = read(value)
        return floats(map(sigmoid, flat(tensor)), tensor.shape)

    return apply


def sigmoid(logit: float) -> float:
    """Return `1 / (1 + exp(-logit))`, in the form that cannot overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1.0 + power)
