"""`tensor.quantize`: floats to the steps of a quantized input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import flat, integers
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {"scale": Parameter("real", low=1e-30), "zero_point": Parameter("whole", 0)}
_RANGES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255), DType.INT16: (-32768, 32767)}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return what quantizes: `x / scale + zero_point`, rounded half to even and clipped. Steps before it make floats.

    Raises:
        ManifestError: The input is not int8, uint8 or int16.
    """
    spec = place.spec()
    if spec.dtype not in _RANGES:
        raise ManifestError(
            f"pipeline: `tensor.quantize` makes int8, uint8 or int16, and input `{spec}` is not",
            hint="leave the step out: the one before it makes floats",
        )
    return _Quantize(spec, parameters["scale"], parameters["zero_point"])


class _Quantize:
    """The step, with what the steps before it have to make."""

    def __init__(self, spec: TensorSpec, scale: float, zero: int) -> None:
        self.takes = TensorSpec(spec.name, DType.FLOAT32, spec.shape, is_rank_known=spec.is_rank_known)
        self._dtype, self._scale, self._zero = spec.dtype, scale, zero

    def __call__(self, tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG002
        low, high = _RANGES[self._dtype]
        steps = (min(max(round(value / self._scale) + self._zero, low), high) for value in flat(tensor))
        return integers(steps, self._dtype, tensor.shape)
