"""`tensor.constant`: an input that is always the same, such as a sampling rate."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.parameters import Parameter, shown
from edge_infer.tensors import elements
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"values": Parameter("numbers")}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that gives the constant, in the input's type and shape.

    Raises:
        ManifestError: The numbers are not as many as the input has elements, or do not fit its type.
    """
    spec, values = place.spec(), parameters["values"]
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in spec.shape)
    is_float = spec.dtype in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
    kind = float if is_float else bool if spec.dtype is DType.BOOL else int
    try:
        tensor = Tensor(elements.pack([kind(value) for value in values], spec.dtype), spec.dtype, shape)
    except ValueError as error:
        raise ManifestError(
            f"pipeline: `tensor.constant` has the values {shown(values)}, expected {prod(shape)} numbers that "
            f"{spec.dtype} holds, for input `{spec}`",
            hint=f"write {prod(shape)} of them in `values`",
            field="values",
        ) from error

    def apply(value: Any, item: Item) -> Tensor:  # noqa: ARG001
        return tensor

    return apply
