"""By how much the rounding errors of weights shift what layers give, from sums of what the layers read.

A layer with weights is linear: for the sum of many inputs, errors give the sum of what they give for each. So values
are added up while a pass over the calls finds their ranges, and the errors meet them once, behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel moves over the axes between batch and channels.

    Attributes:
        kernel: Its size.
        strides: How far it moves from one output to the next.
        dilations: How far its places are from one another.
        pads: How many zeros are before and behind the values, or `upper` or `lower` for as many as give each stride an
            output, the odd one behind or before.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] | str

    def sums(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Add up what each place of the kernel meets.

        Args:
            values: Their channels are last.

        Returns:
            The sums, of shape [*kernel, channels], and over how many outputs.
        """
        sizes = values.shape[1:-1]
        along = [self._along(axis, size) for axis, size in enumerate(sizes)]
        found = np.zeros((*self.kernel, values.shape[-1]))
        for place in np.ndindex(*self.kernel):
            met = tuple(self._met(axis, place[axis], sizes[axis], *along[axis]) for axis in range(len(sizes)))
            found[place] = values[(slice(None), *met)].sum(axis=tuple(range(len(sizes) + 1)), dtype=np.float64)
        return found, len(values) * prod(count for _, count in along)

    def _along(self, axis: int, size: int) -> tuple[int, int]:
        """Return how many zeros are before an axis, and how many outputs it has."""
        reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        stride = self.strides[axis]
        if isinstance(self.pads, str):
            count = -(-size // stride)
            zeros = max((count - 1) * stride + reach - size, 0)
            return (zeros // 2 if self.pads == "upper" else zeros - zeros // 2), count
        before, behind = self.pads[axis]
        return before, max((size + before + behind - reach) // stride + 1, 0)

    def _met(self, axis: int, place: int, size: int, before: int, count: int) -> slice:
        """Return which values a place of the kernel meets along an axis, the zeros around them left out."""
        stride, first = self.strides[axis], place * self.dilations[axis] - before
        start = first if first >= 0 else first + -(first // stride) * stride
        stop = min(first + (count - 1) * stride + 1, size)
        return slice(start, max(start, stop), stride)


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """A layer, of which the rounding errors of its weights are known.

    Attributes:
        reads: The key of the value that it reads.
        errors: What rounding adds to its weights, of shape [outputs, *kernel, channels of a group].
        window: How they move, or None where they meet rows: the last axes of the value.
        channels_axis: The axis of the value's channels.
    """

    reads: Hashable
    errors: np.ndarray
    window: Window | None = None
    channels_axis: int = -1

    def sums(self, value: np.ndarray) -> tuple[np.ndarray, int]:
        """Add up what each weight meets, and count over how many outputs."""
        if self.window is not None:
            return self.window.sums(np.moveaxis(value, self.channels_axis, -1))
        rows = value.reshape(-1, self.errors.shape[-1])
        return rows.sum(axis=0, dtype=np.float64), len(rows)

    def shift(self, sums: np.ndarray, count: int) -> np.ndarray:
        """Return by how much each output is shifted on average."""
        wide = self.errors.shape[-1]
        groups = sums.shape[-1] // wide
        errors = self.errors.reshape(groups, len(self.errors) // groups, -1, wide)
        found: np.ndarray = np.einsum("gotc,tgc->go", errors, sums.reshape(-1, groups, wide) / count).reshape(-1)
        return found


class InputSums:
    """Sums of what layers read.

    Args:
        layers: The layers.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._readers: dict[Hashable, list[Layer]] = {}
        for layer in layers:
            self._readers.setdefault(layer.reads, []).append(layer)
        self._values: dict[Hashable, np.ndarray] = {}
        self._calls: dict[Hashable, int] = {}
        self._sums: dict[int, tuple[np.ndarray, int]] = {}

    def add(self, key: Hashable, value: np.ndarray) -> None:
        """Add a value of one call; what no layer reads is left out."""
        if key not in self._readers or not value.size:
            return
        known = self._values.get(key)
        if known is not None and known.shape == value.shape:
            known += value
            self._calls[key] += 1
            return
        self._meet(key)
        self._values[key], self._calls[key] = value.astype(np.float32), 1

    def shifts(self, layers: Sequence[Layer]) -> list[np.ndarray | None]:
        """Return by how much each output of layers is shifted on average; None where that is not known."""
        for key in list(self._values):
            self._meet(key)
        found = [self._sums.get(id(layer)) for layer in layers]
        shifts = [
            None if one is None or not one[1] else layer.shift(*one) for layer, one in zip(layers, found, strict=True)
        ]
        return [None if one is None or not np.isfinite(one).all() else one for one in shifts]

    def _meet(self, key: Hashable) -> None:
        """Let the readers of a value meet its sum, which is let go."""
        if key not in self._values:
            return
        value, calls = self._values.pop(key), self._calls.pop(key)
        for layer in self._readers[key]:
            sums, count = layer.sums(value)
            known, before = self._sums.get(id(layer), (np.zeros(sums.shape), 0))
            self._sums[id(layer)] = known + sums, before + count * calls
