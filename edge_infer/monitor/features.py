"""The features of tensors: columns of numbers, the best class, projections of vectors and of images.

Projections are sums of whole numbers, which are exact in float64 whatever the order: every language and engine puts
the same tensor into the same bin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.monitor.reference import SIDE
from edge_infer.tasks.values import flat
from edge_infer.tensors.arrays import has_numpy
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edge_infer.monitor.reference import Group, Reference

#: A rounded number is at most so far from zero, so that sums of 2^26 of them stay exact.
LIMIT = 2**15


def columns_of(reference: Reference, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Give the values of each feature, a list or an array, in the reference's order; none where a tensor is absent."""
    place = 0
    for group in reference.groups:
        tensor = (inputs if group.of == "inputs" else outputs).get(group.tensor)
        directions: Sequence[Sequence[int]] = ()
        if group.take in ("vector", "image"):
            directions = reference.directions[place : place + len(group.names)]
            place += len(group.names)
        if tensor is None:
            yield from [[] for _ in group.names]
        elif has_numpy():
            yield from _by_numpy(group, tensor, directions)
        else:
            yield from _plain(group, tensor, directions)


def array_of(tensor: Any) -> Any:
    """Return a tensor as an array of numpy."""
    import numpy as np

    if isinstance(tensor, Tensor):
        return np.frombuffer(tensor.data(), str(tensor.dtype)).reshape(tensor.shape)
    return np.asarray(tensor)


def whole_numbers(values: Any, group: Group, width: int) -> Any:
    """Return an array's rows as whole numbers in float64: rounded vectors, or sums over the cells of grey pictures."""
    import numpy as np

    rows = np.nan_to_num(array_of(values).astype("f8"), posinf=0, neginf=0)
    rows = np.clip(np.rint(rows * group.scale), -LIMIT, LIMIT)
    if group.take == "vector":
        rows = rows.reshape(len(rows), -1) if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])
        if rows.shape[1] != width:
            raise InputError(f"the monitor watches vectors of {width} numbers, got {rows.shape[1]}", hint=_AGAIN)
        return rows
    planes = _planes(rows.shape)
    rows = rows.sum(planes)
    down, across = (np.arange(size) * SIDE // size for size in rows.shape[1:])
    places = (down[:, None] * SIDE + across[None, :]).reshape(-1)
    flat_rows = rows.reshape(len(rows), -1)
    return np.stack([np.bincount(places, weights=one, minlength=SIDE * SIDE) for one in flat_rows])


_AGAIN = "edge-infer monitor reference BUNDLE DATA makes the reference again"


def _planes(shape: Sequence[int]) -> int:
    """Return the axis of an image's channels."""
    if len(shape) != 4:
        raise InputError(f"the monitor watches images, and the tensor has shape {list(shape)}", hint=_AGAIN)
    return 1 if shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4) else 3


def _by_numpy(group: Group, tensor: Any, directions: Sequence[Sequence[int]]) -> Iterator[Any]:
    import numpy as np

    if directions:
        rows = whole_numbers(tensor, group, len(directions[0]))
        yield from (rows @ np.array(directions, "f8").T).T
        return
    table = array_of(tensor)
    table = table.reshape(len(table), -1) if table.ndim else table.reshape(1, 1)
    if group.take == "best":
        yield table.argmax(1)
        yield table.max(1)
        return
    _check_width(group, table.shape[1])
    yield from table.T


def _check_width(group: Group, width: int) -> None:
    if width != len(group.names):
        raise InputError(
            f"the monitor watches {len(group.names)} columns of `{group.tensor}`, got {width}", hint=_AGAIN
        )


def _plain(group: Group, tensor: Any, directions: Sequence[Sequence[int]]) -> Iterator[list[float]]:
    values, shape = flat(tensor), tensor.shape
    count = shape[0] if shape else 1
    width = len(values) // count if count else 0
    rows = [values[i * width : (i + 1) * width] for i in range(count)]
    if directions:
        scaled = [_scaled(row, group, shape) for row in rows]
        if scaled and len(scaled[0]) != len(directions[0]):
            raise InputError(
                f"the monitor watches vectors of {len(directions[0])} numbers, got {len(scaled[0])}", hint=_AGAIN
            )
        for one in directions:
            yield [float(sum(a * b for a, b in zip(row, one, strict=True))) for row in scaled]
        return
    if group.take == "best":
        best = [max(range(width), key=row.__getitem__) for row in rows]
        yield [float(one) for one in best]
        yield [float(row[one]) for row, one in zip(rows, best, strict=True)]
        return
    _check_width(group, width)
    for i in range(width):
        yield [float(row[i]) for row in rows]


def _scaled(row: Sequence[float], group: Group, shape: Sequence[int]) -> list[int]:
    numbers = [_rounded(one * group.scale) for one in row]
    if group.take == "vector":
        return numbers
    first = _planes(shape) == 1
    channels, height, width = (shape[1], shape[2], shape[3]) if first else (shape[3], shape[1], shape[2])
    cells = [0] * (SIDE * SIDE)
    for y in range(height):
        for x in range(width):
            at = (y * SIDE // height) * SIDE + x * SIDE // width
            for channel in range(channels):
                place = (channel * height + y) * width + x if first else (y * width + x) * channels + channel
                cells[at] += numbers[place]
    return cells


def _rounded(value: float) -> int:
    return min(max(round(value), -LIMIT), LIMIT) if value - value == 0 else 0
