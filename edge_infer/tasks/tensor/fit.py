"""`tensor.fit`: a tensor with as many rows as the model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import floats
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "rows": Parameter("whole", low=1, high=2**20),
    "value": Parameter("real", 0.0),
}
_MAX_ELEMENTS = 2**28


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that cuts the last rows of [rows, ...] off, or adds rows of one value."""
    rows, value = parameters["rows"], parameters["value"]

    def apply(tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG001
        width = tensor.size // tensor.shape[0] if tensor.shape and tensor.shape[0] else 0
        if tensor.dtype is not DType.FLOAT32 or not width or rows * width > _MAX_ELEMENTS:
            raise InputError(
                f"a tensor of {tensor.dtype} and shape {list(tensor.shape)} cannot be made {rows} rows long",
                hint="`tensor.fit` takes float32 [rows, ...]: put it before tensor.quantize",
            )
        shape, size = (rows, *tensor.shape[1:]), 4 * width
        kept = bytes(tensor.data()[: rows * size])
        fill = floats([value], (1,)).data()
        return Tensor(kept + bytes(fill) * (rows * width - len(kept) // 4), tensor.dtype, shape)

    return apply
