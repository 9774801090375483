"""`post.mask`: a class for each pixel to a mask for each class, in the size of the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError, InputError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.image.resampling import resized
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.map_part import part_of
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.post.scores import Scores
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    # `labels`: [rows, columns] of class numbers; else scores, the channels first or last.
    "layout": Parameter("choice", "labels", choices=("labels", "CHW", "HWC")),
}
#: The most pixels of all masks of an image together.
MAX_PIXELS = 300_000_000


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `[{"label", "score", "mask"}]` for each class that some pixel has, in the classes' order.

    A mask is an `Image` of one channel in the size of the original, 255 where the class is. `score` is None, as in
    transformers' semantic segmentation. What a letterbox added is cut. Scores are resized bilinearly before the best is
    chosen (PyTorch's `interpolate`, corners not aligned), class numbers by the nearest pixel.
    """
    read, layout = reader(parameters["tensor"], place, "post.mask"), parameters["layout"]

    def apply(value: Any, item: Item) -> list[dict[str, Any]]:
        tensor = read(value)
        numbers, shape = flat(tensor), tensor.shape
        if len(shape) != (2 if layout == "labels" else 3):
            raise ExecutionError(
                f"the output has shape {list(shape)}, which is not that of `{layout}`", hint="choose another `layout`"
            )
        if layout == "labels":
            height, width = shape
            labels: Sequence[int] = numbers
        else:
            classes, height, width = shape if layout == "CHW" else (shape[2], shape[0], shape[1])
            place.check_labels(classes)
            scores = Scores(numbers, classes, width, height, is_first=layout == "CHW")
            labels = scores.labels(part_of(width, height, item), item.width, item.height)
            width, height = item.width, item.height
        found, present = [], sorted({int(one) for one in labels})
        if len(present) * item.width * item.height > MAX_PIXELS:
            raise InputError(
                f"{len(present)} masks of {item.width} x {item.height} pixels are more than {MAX_PIXELS}",
                hint="give a smaller image",
            )
        for label in present:
            mask = bytes(255 if one == label else 0 for one in labels)
            image = Image(mask, width, height, 1)
            found.append({"label": place.label(label), "score": None, "mask": _in_image(image, item)})
        return found

    return apply


def _in_image(mask: Image, item: Item) -> Image:
    """Return a mask in the size of the image."""
    if (mask.width, mask.height) == (item.width, item.height):
        return mask
    left, top, right, bottom = part_of(mask.width, mask.height, item)
    rows = (mask.data[y * mask.width + left : y * mask.width + right] for y in range(top, bottom))
    return resized(
        Image(b"".join(rows), right - left, bottom - top, 1), item.width, item.height, "nearest", "horizontal"
    )
