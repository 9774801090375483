"""Two small functions on vectors: how alike two are, and rows of length 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def cosine_similarity(first: Iterable[float], second: Iterable[float]) -> float:
    """Return the cosine of the angle between two vectors: 1 for the same direction, -1 for the opposite one.

    It is 0 where one of them is zero.

    Args:
        first: Any numbers: a list, an array, a tensor of one dimension.
        second: As many numbers.

    Raises:
        InputError: They are of different lengths; it is a `ValueError`.

    >>> cosine_similarity([1.0, 0.0], [1.0, 1.0])
    0.7071067811865475
    """
    a, b = _numbers(first), _numbers(second)
    if len(a) != len(b):
        raise InputError(
            f"the vectors have {len(a)} and {len(b)} numbers",
            hint="compare vectors of one length",
            expected=len(a),
            got=len(b),
        )
    dot = length_a = length_b = 0.0
    for x, y in zip(a, b, strict=True):
        dot += x * y
        length_a += x * x
        length_b += y * y
    if length_a == 0 or length_b == 0:
        return 0.0
    return max(-1.0, min(1.0, dot / (math.sqrt(length_a) * math.sqrt(length_b))))


def batch_normalize(vectors: Iterable[Iterable[float]]) -> list[list[float]]:
    """Return vectors of length 1 in the same directions; a zero vector stays zero.

    Args:
        vectors: Vectors of one length.

    Raises:
        InputError: They are of different lengths; it is a `ValueError`.

    >>> batch_normalize([[3.0, 4.0], [0.0, 2.0]])
    [[0.6, 0.8], [0.0, 1.0]]
    """
    rows = [_numbers(one) for one in vectors]
    made = []
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InputError(
                f"vector {number} has {len(row)} numbers, the first has {len(rows[0])}",
                hint="give vectors of one length",
                expected=len(rows[0]),
                got=len(row),
            )
        total = 0.0
        for value in row:
            total += value * value
        length = math.sqrt(total) or 1.0
        made.append([value / length for value in row])
    return made


def _numbers(vector: Iterable[float]) -> Sequence[float]:
    values = vector.tolist() if hasattr(vector, "tolist") else list(vector)
    if not isinstance(values, list) or not all(isinstance(one, (int, float)) for one in values):
        raise InputError("a vector is not a list of numbers", hint="give numbers: [0.1, 0.2]")
    return values
