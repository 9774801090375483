"""Resize a map of numbers by cubic convolution, as PyTorch's `interpolate(mode="bicubic")` does.

Source: Keys 1981 with a = -0.75, `aten/src/ATen/native/UpSample.h`, corners not aligned; edges are repeated. Sums are
float64, from the first of four neighbours to the last, rows before columns: the same bits with numpy, without it, and
in JavaScript.
"""

from __future__ import annotations

from array import array
from math import floor
from typing import TYPE_CHECKING

from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    #: The four places of a line that a new one is made of, and their weights.
    Taps = list[tuple[tuple[int, int, int, int], tuple[float, float, float, float]]]

_A = -0.75


def resized(
    numbers: Sequence[float], stride: int, part: tuple[int, int, int, int], width: int, height: int
) -> array[float]:
    """Resize a part of a map.

    Args:
        numbers: The map, row by row.
        stride: How many numbers a row has.
        part: Left, top, right and bottom.
        width: What the part's width becomes.
        height: Likewise its height.

    Returns:
        `height * width` numbers, each rounded once to float32.
    """
    left, top, right, bottom = part
    across, down = _taps(right - left, width), _taps(bottom - top, height)
    if has_numpy():
        return _by_numpy(numbers, stride, part, across, down)
    wide = [
        [w0 * row[a] + w1 * row[b] + w2 * row[c] + w3 * row[d] for (a, b, c, d), (w0, w1, w2, w3) in across]
        for row in (numbers[y * stride + left : y * stride + right] for y in range(top, bottom))
    ]
    found: array[float] = array("f")
    for (a, b, c, d), (w0, w1, w2, w3) in down:
        rows = zip(wide[a], wide[b], wide[c], wide[d], strict=True)
        found.extend([w0 * p + w1 * q + w2 * r + w3 * s for p, q, r, s in rows])
    return found


def _by_numpy(
    numbers: Sequence[float], stride: int, part: tuple[int, int, int, int], across: Taps, down: Taps
) -> array[float]:
    import numpy as np

    left, top, right, bottom = part
    values = np.asarray(numbers, np.float64).reshape(-1, stride)[top:bottom, left:right]
    with np.errstate(all="ignore"):  # infinities give what they give
        places, weights = np.array([one[0] for one in across]), np.array([one[1] for one in across])
        wide = weights[:, 0] * values[:, places[:, 0]]
        for i in range(1, 4):
            wide = wide + weights[:, i] * values[:, places[:, i]]
        places, weights = np.array([one[0] for one in down]), np.array([one[1] for one in down])[:, :, None]
        tall = weights[:, 0] * wide[places[:, 0]]
        for i in range(1, 4):
            tall = tall + weights[:, i] * wide[places[:, i]]
    return array("f", tall.astype(np.float32).tobytes())


def _taps(old: int, new: int) -> Taps:
    found: Taps = []
    for i in range(new):
        at = (i + 0.5) * (old / new) - 0.5
        first = floor(at)
        t = at - first
        places = [min(max(first + k, 0), old - 1) for k in (-1, 0, 1, 2)]
        weights = (_outer(t + 1), _inner(t), _inner(1 - t), _outer(2 - t))
        found.append(((places[0], places[1], places[2], places[3]), weights))
    return found


def _inner(x: float) -> float:
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _outer(x: float) -> float:
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
