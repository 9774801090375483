"""`post.softmax`: logits to probabilities that sum to 1 along the last axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import floats, rows

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "tensor": Parameter("text", None),
    # Divides the logits: above 1 for a model that is too sure (Guo et al., 2017, temperature scaling).
    "temperature": Parameter("real", 1.0, low=1e-6),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `exp(x - max)` over its sum, in float64, rounded once to float32."""
    read = reader(parameters["tensor"], place, "post.softmax")
    temperature = parameters["temperature"]

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        tensor = read(value)
        made: list[float] = []
        for row in rows(tensor):
            highest = max(row)
            powers = [math.exp((logit - highest) / temperature) for logit in row]
            total = 0.0
            for power in powers:
                total += power
            made += [power / total for power in powers]
        return floats(made, tensor.shape)

    return apply
