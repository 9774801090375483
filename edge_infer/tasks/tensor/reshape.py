"""`tensor.reshape`: the same elements in another shape."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.parameters import Parameter, shown
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"shape": Parameter("numbers")}
_MAX_RANK, _MAX_DIM = 8, 2**28


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that gives a tensor another shape, without the batch.

    Raises:
        ManifestError: The shape is not one to eight whole numbers.
    """
    shape = parameters["shape"]
    fits = all(float(dim).is_integer() and 1 <= dim <= _MAX_DIM for dim in shape)
    if not fits or not 1 <= len(shape) <= _MAX_RANK:
        raise ManifestError(
            f"pipeline: the `shape` of `tensor.reshape` is {shown(shape)}, expected 1 to {_MAX_RANK} whole numbers "
            f"from 1 to {_MAX_DIM}",
            hint='"shape": [3, 224, 224], without the batch',
            field="shape",
        )
    wanted = tuple(int(dim) for dim in shape)

    def apply(tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG001
        if prod(tensor.shape) != prod(wanted):
            raise InputError(
                f"a tensor of shape {list(tensor.shape)} has {prod(tensor.shape)} elements, and {list(wanted)} has "
                f"{prod(wanted)}",
                hint="give an input of the length that the model was made for, or a step that fits it",
            )
        return Tensor(tensor.data(), tensor.dtype, wanted)

    return apply
