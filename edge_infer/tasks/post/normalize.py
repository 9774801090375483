"""`post.normalize`: a vector of length 1."""

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

PARAMETERS = {"tensor": Parameter("text", None), "epsilon": Parameter("real", 1e-12, low=0)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: each row divided by its Euclidean length, or by `epsilon` where that is longer."""
    read, epsilon = reader(parameters["tensor"], place, "post.normalize"), parameters["epsilon"]

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        tensor = read(value)
        made: list[float] = []
        for row in rows(tensor):
            total = 0.0
            for number in row:
                total += number * number
            length = max(math.sqrt(total), epsilon)
            made += [number / length for number in row]
        return floats(made, tensor.shape)

    return apply
