"""`image.to_tensor`: the levels 0 to 255 themselves, for models that normalise in their first layer."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.image.layout import LAYOUTS, is_channels_first
from edge_infer.tasks.parameters import Parameter
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.image.image import Image
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"layout": Parameter("choice", "auto", choices=LAYOUTS)}
_MIDDLE = bytes((level + 128) % 256 for level in range(256))


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that makes a tensor of levels.

    For an int8 input 128 is taken off each level, which is how TensorFlow Lite shows the same pixels to int8 models.

    Raises:
        ManifestError: The input is of a type that levels do not fit.
    """
    spec = place.spec()
    if spec.dtype not in (DType.UINT8, DType.INT8, DType.FLOAT32):
        hint = "image.rescale_normalize makes float16, tensor.quantize behind it int16"
        raise ManifestError(
            f"pipeline: `image.to_tensor` makes uint8, int8 or float32, and input `{spec}` is not", hint=hint
        )
    channels_first = is_channels_first(parameters["layout"], spec)

    def apply(image: Image, item: Item) -> Tensor:
        item.input_width, item.input_height = image.width, image.height
        size, depth, data = (image.height, image.width), image.channels, image.data
        if channels_first:
            data = b"".join(data[channel::depth] for channel in range(depth))
        if spec.dtype is DType.INT8:
            data = data.translate(_MIDDLE)
        shape = (depth, *size) if channels_first else (*size, depth)
        # `array("f", data)` would take the bytes for those of floats.
        return Tensor(array("f", iter(data)) if spec.dtype is DType.FLOAT32 else data, spec.dtype, shape)

    return apply
