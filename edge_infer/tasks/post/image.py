"""`post.image`: an image that a model gives, as pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat, float32
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    "layout": Parameter("choice", "CHW", choices=("CHW", "HWC")),
    # What the model's numbers are multiplied by, and what is added then, to get 0 to 255.
    "scale": Parameter("real", 255.0, low=-1e6, high=1e6),
    "offset": Parameter("real", 0.0, low=-1e6, high=1e6),
}
#: Grey, or red, green and blue.
_CHANNELS = (1, 3)


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: an `Image` of the size that the model gives.

    A number becomes `number * scale + offset`, rounded to float32 after each, then to a whole number, half to even, and
    limited to 0 to 255, as transformers' image-to-image pipeline does; NaN becomes 0.
    """
    read, layout = reader(parameters["tensor"], place, "post.image"), parameters["layout"]
    scale, offset = float32(parameters["scale"]), float32(parameters["offset"])

    def apply(value: Any, item: Item) -> Image:  # noqa: ARG001
        tensor = read(value)
        shape = (
            tensor.shape if len(tensor.shape) != 2 else (1, *tensor.shape) if layout == "CHW" else (*tensor.shape, 1)
        )
        channels = shape[0 if layout == "CHW" else 2] if len(shape) == 3 else 0
        if channels not in _CHANNELS:
            raise ExecutionError(
                f"the output has shape {list(tensor.shape)}, expected an image of 1 or 3 channels as `{layout}`",
                hint="choose another `layout`, or name the output that holds the image: `tensor`",
            )
        height, width = shape[1:] if layout == "CHW" else shape[:2]
        numbers = flat(tensor)
        pixels = (_by_numpy if has_numpy() else _plain)(numbers, scale, offset)
        if layout == "CHW" and channels > 1:
            count = height * width
            planes = [pixels[i * count : (i + 1) * count] for i in range(channels)]
            whole = bytearray(len(pixels))
            for i, plane in enumerate(planes):
                whole[i::channels] = plane
            pixels = bytes(whole)
        return Image(pixels, width, height, channels)

    return apply


def _plain(numbers: Sequence[float], scale: float, offset: float) -> bytes:
    levels = (float32(float32(number * scale) + offset) for number in numbers)
    return bytes(0 if level != level else round(min(max(level, 0.0), 255.0)) for level in levels)


def _by_numpy(numbers: Sequence[float], scale: float, offset: float) -> bytes:
    import numpy as np

    with np.errstate(all="ignore"):
        levels = np.asarray(numbers, np.float32) * np.float32(scale) + np.float32(offset)
        levels = np.nan_to_num(levels, nan=0.0, posinf=255.0, neginf=0.0)
    found: bytes = np.clip(np.rint(levels), 0, 255).astype(np.uint8).tobytes()
    return found
