"""`crop`: an image and the boxes of a detector to an image for each box."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, of_work
from edge_infer.tasks.image.decode import PARAMETERS, prepare
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.shared import beginnings
from edge_infer.tasks.steps import read_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step."""
    return of_work(step, step.parameters, lambda _opening: _Crop(step, bundle))


class _Crop:
    def __init__(self, step: ChainStep, bundle: Bundle) -> None:
        self._parameters = step.parameters
        place = Place(bundle.read, (), (), ())
        self._decode = prepare({name: one.default for name, one in PARAMETERS.items()}, place)
        self.beginnings: Sequence[Beginning] = beginnings(
            [read_step({"step": "image.decode"}, step.name)], place, bundle.manifest
        )

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:
        found = []
        for one in values:
            image, _ = shared.through(one["image"], [self._decode], self.beginnings, Item())
            found.append([cropped(image, box, self._parameters["margin"]) for box in self._chosen(one["boxes"])])
        return found

    def close(self) -> None:
        pass

    def _chosen(self, boxes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, float]]:
        p = self._parameters
        kept = [one for one in boxes if p["label"] in (None, one["label"]) and one["score"] >= p["min_score"]]
        return [one["box"] for one in kept[: p["most"]]]


def cropped(image: Image, box: Mapping[str, float], margin: float) -> Image:
    """Return the pixels of a box: whole ones, all that it touches, at least one; of what lies in the image.

    Args:
        image: The image.
        box: `xmin`, `ymin`, `xmax`, `ymax` in its pixels.
        margin: How much of its size it is widened by on each side.
    """
    wide, high = box["xmax"] - box["xmin"], box["ymax"] - box["ymin"]
    left = min(max(floor(box["xmin"] - margin * wide), 0), image.width - 1)
    top = min(max(floor(box["ymin"] - margin * high), 0), image.height - 1)
    right = min(max(ceil(box["xmax"] + margin * wide), left + 1), image.width)
    bottom = min(max(ceil(box["ymax"] + margin * high), top + 1), image.height)
    row, channels = image.width * image.channels, image.channels
    data = b"".join(image.data[y * row + left * channels : y * row + right * channels] for y in range(top, bottom))
    return Image(data, right - left, bottom - top, channels)
