"""The part of a model's map that the image fills: without what a letterbox added."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.tasks.item import Item


def part_of(width: int, height: int, item: Item) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the part of the model's map that the image fills, without a letterbox."""
    left, top, right, bottom = 0, 0, width, height
    for step in reversed(item.geometry):
        if step.left > 0 or step.top > 0 or step.scale_x == step.scale_y:
            ratio_x, ratio_y = width / (item.input_width or width), height / (item.input_height or height)
            left, top = max(round(step.left * ratio_x), 0), max(round(step.top * ratio_y), 0)
            right = min(width, round((step.left + item.width * step.scale_x) * ratio_x))
            bottom = min(height, round((step.top + item.height * step.scale_y) * ratio_y))
    return left, top, right, bottom
