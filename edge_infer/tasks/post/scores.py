"""Scores of classes for each pixel of a map: resized, and the best class chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence


class Scores:
    """A map of scores.

    Args:
        numbers: The scores.
        classes: How many there are for each pixel.
        width: Of the map, in pixels.
        height: Likewise.
        is_first: Whether all pixels of a class lie together; else all classes of a pixel do.
    """

    def __init__(self, numbers: Sequence[float], classes: int, width: int, height: int, *, is_first: bool) -> None:
        self._numbers = numbers
        self._classes = classes
        self._width = width
        self._height = height
        self._is_first = is_first

    def labels(self, part: tuple[int, int, int, int], width: int, height: int) -> list[int]:
        """Return the best class of each pixel of a part of the map that is resized; of equal ones the lower.

        Args:
            part: Left, top, right and bottom.
            width: What the part's width becomes.
            height: Likewise its height.
        """
        left, top, right, bottom = part
        across, down = _places(right - left, width), _places(bottom - top, height)
        row = self._by_numpy if has_numpy() else self._plain
        found: list[int] = []
        for first, second, weight in down:
            found += row(top + first, top + second, weight, left, across)
        return found

    def _plain(
        self, upper: int, lower: int, weight: float, left: int, across: list[tuple[int, int, float]]
    ) -> list[int]:
        step, pixel = (self._width * self._height, 1) if self._is_first else (1, self._classes)
        numbers, found = self._numbers, []
        upper, lower = upper * self._width + left, lower * self._width + left
        for first, second, share in across:
            best, label = 0.0, -1
            for c in range(self._classes):
                a, b = numbers[c * step + (upper + first) * pixel], numbers[c * step + (upper + second) * pixel]
                d, e = numbers[c * step + (lower + first) * pixel], numbers[c * step + (lower + second) * pixel]
                over, under = (1 - share) * a + share * b, (1 - share) * d + share * e
                score = (1 - weight) * over + weight * under
                if label < 0 or score > best:
                    best, label = score, c
            found.append(label)
        return found

    def _by_numpy(
        self, upper: int, lower: int, weight: float, left: int, across: list[tuple[int, int, float]]
    ) -> list[int]:
        import numpy as np

        shape = (self._classes, self._height, self._width) if self._is_first else (self._height, self._width, -1)
        scores = np.asarray(self._numbers).reshape(shape)
        scores = scores if self._is_first else scores.transpose(2, 0, 1)
        columns = np.array(across)
        first, second, share = columns[:, 0].astype(int) + left, columns[:, 1].astype(int) + left, columns[:, 2]
        over, under = (
            (1 - share) * scores[:, y, first].astype(np.float64) + share * scores[:, y, second] for y in (upper, lower)
        )
        best: list[int] = ((1 - weight) * over + weight * under).argmax(0).tolist()
        return best


def _places(old: int, new: int) -> list[tuple[int, int, float]]:
    """Return for each place of a resized line the two old ones it lies between, and how near it is to the second."""
    found = []
    for i in range(new):
        at = max((i + 0.5) * (old / new) - 0.5, 0.0)
        first = min(int(at), old - 1)
        found.append((first, min(first + 1, old - 1), at - first))
    return found
