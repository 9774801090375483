"""One object that a detector found."""

from __future__ import annotations

from typing import NamedTuple


class Detection(NamedTuple):
    """One object, in pixels of the model's input.

    Attributes:
        score: 0 to 1.
        label: The class's number.
        box: Left, top, right and bottom.
        points: x and y of each of its points, such as the eyes of a face; an empty tuple where there are none.
    """

    score: float
    label: int
    box: tuple[float, float, float, float]
    points: tuple[tuple[float, float], ...] = ()


def corners(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    """Return the corners of a box that is given by its centre and size."""
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2
