"""`image.flip_channels`: red, green, blue to blue, green, red."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.image.image import Image

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.parameters import Parameter
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS: dict[str, Parameter] = {}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that swaps the first and the last channel, for models that OpenCV's images trained."""

    def apply(image: Image, item: Item) -> Image:  # noqa: ARG001
        data = bytearray(image.data)
        last = image.channels - 1
        data[0 :: image.channels], data[last :: image.channels] = (
            image.data[last :: image.channels],
            image.data[0 :: image.channels],
        )
        return Image(bytes(data), image.width, image.height, image.channels)

    return apply
