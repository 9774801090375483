"""`tensor.dequantize`: a quantized output to floats."""

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
    "tensor": Parameter("text", None),
    "scale": Parameter("real", low=1e-30),
    "zero_point": Parameter("whole", 0),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that replaces one output by its floats: `(x - zero_point) * scale`.

    Where a variant gives floats already, nothing is changed.

    Raises:
        ManifestError: The model has no such output.
    """
    name = place.output(parameters["tensor"], "tensor.dequantize")
    scale, zero = parameters["scale"], parameters["zero_point"]

    def apply(outputs: dict[str, Tensor], item: Item) -> dict[str, Tensor]:  # noqa: ARG001
        tensor = outputs[name]
        if tensor.dtype.startswith("float"):
            return outputs
        return {**outputs, name: floats([(step - zero) * scale for step in flat(tensor)], tensor.shape)}

    return apply
