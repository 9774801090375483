"""`image.center_crop`: the middle of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.image.image import Image
from edge_infer.tasks.image.padding import padded
from edge_infer.tasks.item import Geometry
from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "width": Parameter("whole", low=1, high=16_384),
    "height": Parameter("whole", low=1, high=16_384),
    "rule": Parameter("choice", "transformers", choices=("transformers", "torchvision")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that crops; a smaller image is padded with black.

    Where the margin is odd, `transformers` rounds the left and upper one down, `torchvision` to the even number.
    """
    width, height, is_torchvision = parameters["width"], parameters["height"], parameters["rule"] == "torchvision"

    def apply(image: Image, item: Item) -> Image:
        more_x, more_y = max(width - image.width, 0), max(height - image.height, 0)
        left, top = (more // 2 if is_torchvision else (more + 1) // 2 for more in (more_x, more_y))
        if more_x or more_y:
            image = padded(image, left, top, more_x - left, more_y - top, 0)
        x, y = (
            round(margin / 2) if is_torchvision else margin // 2
            for margin in (image.width - width, image.height - height)
        )
        item.geometry.append(Geometry(1, 1, left - x, top - y))
        if image.pillow is not None:
            return Image.of_pillow(image.pillow.crop((x, y, x + width, y + height)))
        stride, row = image.width * image.channels, width * image.channels
        starts = ((y + line) * stride + x * image.channels for line in range(height))
        return Image(b"".join(image.data[at : at + row] for at in starts), width, height, image.channels)

    return apply
