"""`image.letterbox`: an image resized to fit a frame, the rest of the frame filled with one grey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.image.padding import padded
from edge_infer.tasks.image.resampling import FILTERS, ORDERS, resized
from edge_infer.tasks.item import Geometry
from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.image.image import Image
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "width": Parameter("whole", low=1, high=16_384),
    "height": Parameter("whole", low=1, high=16_384),
    "filter": Parameter("choice", "bilinear", choices=("nearest", *FILTERS)),
    "order": Parameter("choice", "horizontal", choices=ORDERS),
    "color": Parameter("whole", 114, low=0, high=255),
    "anchor": Parameter("choice", "center", choices=("center", "top_left")),
    "upscale": Parameter("flag", True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that fits an image into the frame.

    The geometry is that of Ultralytics (ultralytics/data/augment.py, `LetterBox`): sides rounded half to even, margins
    to `round(margin / 2 - 0.1)`. Ultralytics resizes with OpenCV; the pixels here are Pillow's, a few levels apart.
    """
    width, height = parameters["width"], parameters["height"]

    def apply(image: Image, item: Item) -> Image:
        ratio = min(width / image.width, height / image.height)
        if not parameters["upscale"]:
            ratio = min(ratio, 1.0)
        inner_width, inner_height = max(round(image.width * ratio), 1), max(round(image.height * ratio), 1)
        image = resized(image, inner_width, inner_height, parameters["filter"], parameters["order"])
        more_x, more_y = width - inner_width, height - inner_height
        is_centered = parameters["anchor"] == "center"
        left, top = (round(more / 2 - 0.1) if is_centered else 0 for more in (more_x, more_y))
        item.geometry.append(Geometry(ratio, ratio, left, top))
        return padded(image, left, top, more_x - left, more_y - top, parameters["color"])

    return apply
