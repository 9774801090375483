"""`image.rescale_normalize`: levels of 0 to 255 to the numbers that a model takes."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.image.layout import LAYOUTS, is_channels_first
from edge_infer.tasks.parameters import Parameter, shown
from edge_infer.tensors.arrays import has_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.image.image import Image
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "scale": Parameter("real", 1 / 255),
    "mean": Parameter("numbers", [0.0, 0.0, 0.0]),
    "std": Parameter("numbers", [1.0, 1.0, 1.0]),
    "layout": Parameter("choice", "auto", choices=LAYOUTS),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that makes a float tensor: `(level * scale - mean) / std` for each channel.

    Each of the 256 levels is computed once, in float64, and rounded once to the input's type: every language then looks
    up the same bits. Arithmetic in float32, as torchvision does it, differs from them by at most 4.8e-7.

    Raises:
        ManifestError: The input is not float32 or float16; a `std` is 0; or `mean` and `std` differ in length.
    """
    spec, mean, std = place.spec(), parameters["mean"], parameters["std"]
    if spec.dtype not in (DType.FLOAT32, DType.FLOAT16):
        hint = "image.to_tensor gives a model the levels themselves, tensor.quantize behind this step its own steps"
        raise ManifestError(f"pipeline: `image.rescale_normalize` makes floats, and input `{spec}` is not", hint=hint)
    if len(mean) != len(std) or not mean or 0 in std:
        raise ManifestError(
            f"pipeline: `image.rescale_normalize` has the `mean` {shown(mean)} and the `std` {shown(std)}, expected a "
            "number for each channel in both, and no `std` 0",
            hint='"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]',
            field="std",
        )
    channels_first = is_channels_first(parameters["layout"], spec)
    scale = parameters["scale"]
    tables = [array("f", [(level * scale - m) / s for level in range(256)]) for m, s in zip(mean, std, strict=True)]

    def apply(image: Image, item: Item) -> Tensor:
        item.input_width, item.input_height = image.width, image.height
        size, depth = (image.height, image.width), image.channels
        used = tables if len(tables) == depth else tables[:1] * depth
        shape = (depth, *size) if channels_first else (*size, depth)
        made = _by_numpy(image, used, channels_first) if has_numpy() else _plain(image, used, channels_first)
        tensor = Tensor(made, DType.FLOAT32, shape)
        return tensor if spec.dtype is DType.FLOAT32 else _halved(tensor)

    return apply


def _by_numpy(image: Image, tables: list[array[float]], channels_first: bool) -> Any:
    import numpy as np

    depth, size = image.channels, (image.height, image.width)
    planes = np.frombuffer(image.data, np.uint8).reshape(*size, depth)
    made = np.empty((depth, *size) if channels_first else (*size, depth), np.float32)
    for channel, table in enumerate(tables):
        target = made[channel] if channels_first else made[:, :, channel]
        # Each byte is a place in the table: nothing is clipped, and numpy needs no second copy to be safe from errors.
        np.asarray(table).take(planes[:, :, channel], out=target, mode="clip")
    return made


def _plain(image: Image, tables: list[array[float]], channels_first: bool) -> array[float]:
    depth = image.channels
    if channels_first:
        made = array("f")
        for channel, table in enumerate(tables):
            made.extend(map(table.__getitem__, image.data[channel::depth]))
        return made
    made = array("f", bytes(4 * len(image.data)))
    for channel, table in enumerate(tables):
        made[channel::depth] = array("f", map(table.__getitem__, image.data[channel::depth]))
    return made


def _halved(tensor: Tensor) -> Tensor:
    from edge_infer.tensors import elements

    return Tensor(elements.pack(list(tensor.data().cast("f")), DType.FLOAT16), DType.FLOAT16, tensor.shape)
