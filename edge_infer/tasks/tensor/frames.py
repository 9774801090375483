"""`tensor.frames`: a tensor cut into the frames that a streamed model takes one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "rows": Parameter("whole", low=1, high=2**16),
    # The samples of a sound that a row stands for, so that steps behind the model know the time.
    "samples": Parameter("whole", 0, low=0, high=2**20),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that cuts [rows, ...] into tensors of `rows` rows each; what is left at the end goes."""
    rows, samples = parameters["rows"], parameters["samples"]

    def apply(tensor: Tensor, item: Item) -> list[Tensor]:
        count = tensor.shape[0] // rows if tensor.shape else 0
        if count < 1:
            raise InputError(
                f"a tensor of shape {list(tensor.shape)} is too short: a frame takes {rows} rows",
                hint="give a longer input",
            )
        item.frame = rows * samples
        shape = (rows, *tensor.shape[1:])
        size = tensor.dtype.nbytes(shape)
        data = tensor.data()
        return [Tensor(bytes(data[at : at + size]), tensor.dtype, shape) for at in range(0, count * size, size)]

    return apply
