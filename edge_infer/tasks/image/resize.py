"""`image.resize`: an image in another size, as Pillow resizes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, listed
from edge_infer.tasks.image.resampling import FILTERS, ORDERS, resized
from edge_infer.tasks.item import Geometry
from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.image.image import Image
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

MAX_SIDE = 16_384
PARAMETERS = {
    "width": Parameter("whole", None, low=1, high=MAX_SIDE),
    "height": Parameter("whole", None, low=1, high=MAX_SIDE),
    "shortest": Parameter("whole", None, low=1, high=MAX_SIDE),
    "longest": Parameter("whole", None, low=1, high=MAX_SIDE),
    # With `width` and `height`: the proportions are kept, and both sides are whole multiples of it.
    "multiple": Parameter("whole", None, low=1, high=1024),
    "filter": Parameter("choice", "bilinear", choices=("nearest", *FILTERS)),
    "order": Parameter("choice", "horizontal", choices=ORDERS),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that resizes.

    Either to `width` x `height`, or, keeping the proportions, to a `shortest` or `longest` side, or to a `shortest`
    side unless the other gets longer than `longest`. The other side is cut to a whole number, as in torchvision and
    transformers. With `multiple` the one of `width` and `height` decides that changes the size less, and both sides
    are rounded to multiples, as DPT's processor does.

    Raises:
        ManifestError: The size is not given in one of these ways.
    """
    width, height = parameters["width"], parameters["height"]
    shortest, longest = parameters["shortest"], parameters["longest"]
    is_exact = width is not None and height is not None
    if is_exact == (shortest is not None or longest is not None) or (width is None) != (height is None):
        given = [name for name in ("width", "height", "shortest", "longest") if parameters[name] is not None]
        raise ManifestError(
            f"pipeline: `image.resize` is given {listed(given)}, expected `width` and `height`, or `shortest` and/or "
            "`longest`",
            hint='{"step": "image.resize", "width": 224, "height": 224}',
        )

    multiple = parameters["multiple"]
    if multiple is not None and not is_exact:
        raise ManifestError(
            "pipeline: `image.resize` has `multiple` without `width` and `height`, expected all three or no `multiple`",
            hint=f'"width": 384, "height": 384, "multiple": {multiple}',
            field="multiple",
        )

    def apply(image: Image, item: Item) -> Image:
        if not is_exact:
            to = _proportional(image.width, image.height, shortest, longest)
        else:
            to = (width, height) if multiple is None else _multiples(image, width, height, multiple)
        if max(to) > MAX_SIDE:
            raise InputError(
                f"an image of {image.width} x {image.height} pixels would be resized to {to[0]} x {to[1]}",
                hint=f"give one of less extreme proportions: no side may get longer than {MAX_SIDE}",
            )
        item.geometry.append(Geometry(to[0] / image.width, to[1] / image.height, 0, 0))
        return resized(image, to[0], to[1], parameters["filter"], parameters["order"])

    return apply


def _multiples(image: Image, width: int, height: int, multiple: int) -> tuple[int, int]:
    across, down = width / image.width, height / image.height
    scale = across if abs(1 - across) < abs(1 - down) else down
    sides = (max(round(scale * side / multiple) * multiple, multiple) for side in (image.width, image.height))
    return next(sides), next(sides)


def _proportional(width: int, height: int, shortest: int | None, longest: int | None) -> tuple[int, int]:
    short, long = min(width, height), max(width, height)
    if shortest is not None:
        new_short, new_long = shortest, int(shortest * long / short)
        if longest is not None and new_long > longest:
            new_short, new_long = int(longest * new_short / new_long), longest
    else:
        assert longest is not None
        new_short, new_long = int(longest * short / long), longest
    new_short = max(new_short, 1)
    return (new_short, new_long) if width <= height else (new_long, new_short)
