"""`post.depth`: a map of depths in the size of the image, and a picture of it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError, InputError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.cubic import resized
from edge_infer.tasks.post.map_part import part_of
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat, floats
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {"tensor": Parameter("text", None)}
#: The most pixels of a map: 200 MB of numbers.
MAX_PIXELS = 25_000_000


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `{"predicted_depth", "depth"}`, as transformers' pipeline gives them.

    `predicted_depth` is a tensor [height, width] of the original image, resized by cubic convolution; what a letterbox
    added is cut. `depth` is a grey image of it: 0 where it is least, 255 where it is most; all 0 where it is the same
    everywhere.
    """
    read = reader(parameters["tensor"], place, "post.depth")

    def apply(value: Any, item: Item) -> dict[str, Any]:
        tensor = read(value)
        sizes = [size for size in tensor.shape if size != 1] if len(tensor.shape) > 2 else list(tensor.shape)
        if len(sizes) != 2:
            raise ExecutionError(
                f"the output has shape {list(tensor.shape)}, expected [height, width]",
                hint="name the output that holds depths: `tensor`",
            )
        height, width = sizes
        if item.width * item.height > MAX_PIXELS:
            raise InputError(
                f"a map of {item.width} x {item.height} depths has more than {MAX_PIXELS} pixels",
                hint="give a smaller image",
            )
        part = part_of(width, height, item)
        depths = floats(resized(flat(tensor), width, part, item.width, item.height), (item.height, item.width))
        return {"predicted_depth": depths, "depth": Image(_grey(flat(depths)), item.width, item.height, 1)}

    return apply


def _grey(values: Sequence[float]) -> bytes:
    """Spread numbers over 0 to 255; the fraction is cut."""
    low, high = min(values), max(values)
    if not (isfinite(sum(values)) and high > low):  # a NaN is not always the least or the most
        return bytes(len(values))
    span = high - low
    if has_numpy():
        import numpy as np

        grey: bytes = ((np.asarray(values, np.float64) - low) / span * 255).astype(np.uint8).tobytes()
        return grey
    return bytes(int((value - low) / span * 255) for value in values)
