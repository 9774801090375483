"""`tensor.quantize`: floats to the steps of a quantized input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import flat, integers
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {"scale": Parameter("real", low=1e-30), "zero_point": Parameter("whole", 0)}
_RANGES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255), DType.INT16: (-32768, 32767)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that quantizes: `x / scale + zero_point`, rounded half to even and clipped.

    Raises:
        ManifestError: The input is not int8, uint8 or int16.
    """
    spec, scale, zero = place.spec(), parameters["scale"], parameters["zero_point"]
    if spec.dtype not in _RANGES:
        raise ManifestError(f"pipeline: `tensor.quantize` makes int8, uint8 or int16, and input `{spec}` is not")
    low, high = _RANGES[spec.dtype]

    def apply(tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG001
        steps = (min(max(round(value / scale) + zero, low), high) for value in flat(tensor))
        return integers(steps, spec.dtype, tensor.shape)

    return apply
