"""Evenly spread elements of a large output: what a golden example keeps of it.

Along each axis indices are taken from the first to the last, both included, as many as the part is long. So the part
has the rank of the whole, and its slices, such as boxes and scores, are parts of the same slices.
"""

from __future__ import annotations

import sys
from itertools import product
from math import prod

from edge_infer.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tensors.tensor import Array

#: Axes are cut to this length before shorter ones are cut at all.
_SHORT = 8


class PickedTensor(Tensor):
    """Elements of a larger tensor.

    Attributes:
        whole: The shape of the larger one.
    """

    whole: tuple[int, ...] = ()


def shape_of_part(whole: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the shape of a part of at most so many elements, at least one.

    The longest axis, and those that are at least half as long, are cut to one length first, down to 8; then the next:
    classes stay whole beside rows and columns, or beside boxes.

    >>> shape_of_part((1, 84, 8400), 16_000)
    (1, 84, 190)
    """
    part = list(whole)
    while prod(part) > most and max(part) > _SHORT:
        longest = max(part)
        part = _cut(part, [axis for axis, dim in enumerate(part) if 2 * dim >= longest], _SHORT, most)
    return tuple(_cut(part, range(len(part)), 1, most)) if prod(part) > most else tuple(part)


def _cut(shape: Sequence[int], axes: Sequence[int], least: int, most: int) -> list[int]:
    """Cut axes to the longest length with which at most so many elements are left, or to the least."""

    def cut(length: int) -> list[int]:
        return [min(dim, length) if axis in axes else dim for axis, dim in enumerate(shape)]

    low, high = least, max(shape[axis] for axis in axes)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if prod(cut(middle)) <= most else (low, middle - 1)
    return cut(low)


def indices(length: int, count: int) -> list[int]:
    """Return which of so many indices are taken, first and last included.

    >>> indices(10, 4)
    [0, 3, 6, 9]
    """
    return [i * (length - 1) // (count - 1) for i in range(count)] if count > 1 else [0] * count


def pick(array: Array, part: Sequence[int]) -> PickedTensor:
    """Return evenly spread elements of a `numpy.ndarray` or `Tensor`.

    Args:
        array: The whole, of at least 8 bits an element and no strings.
        part: The shape to take, along each axis at most as long as the whole.
    """
    whole = tuple(array.shape)
    taken = [indices(length, count) for length, count in zip(whole, part, strict=True)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        from edge_infer.tensors.dtypes import DType

        chosen = numpy.ascontiguousarray(array[numpy.ix_(*taken)])
        picked = PickedTensor(chosen.tobytes(), DType.parse(array.dtype), part)
    else:
        data, width = array.data(), array.dtype.bits // 8
        steps = [prod(whole[axis + 1 :]) * width for axis in range(len(whole))]
        offsets = [[index * step for index in axis] for axis, step in zip(taken, steps, strict=True)]
        starts = (sum(one) for one in product(*offsets))
        picked = PickedTensor(b"".join(data[start : start + width] for start in starts), array.dtype, part)
    picked.whole = whole
    return picked


def like(result: Array | None, reference: Array | None) -> Array | None:
    """Return of a result what its reference has of the source's output; None where the result has another shape."""
    if not isinstance(reference, PickedTensor) or result is None:
        return result
    return pick(result, reference.shape) if tuple(result.shape) == reference.whole else None
