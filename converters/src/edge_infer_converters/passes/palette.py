"""Store weights as places in a palette: the values that k-means finds, and for each weight the number of one of them.

What is stored are bytes below 16, 32 or 64, of which `brotli` and `zstd` leave about as many bits as the numbers carry:
a palette saves bytes on the wire, and neither on the disk nor in memory. Each slice has a scale of its own, as in 8
bits, so that one palette serves all. `Gather` and `Mul`, which engines fold when they load the model, give the floats
back: the arithmetic is that of float32.

The centers are those of Lloyd's algorithm (1982, "Least squares quantization in PCM") on a histogram, which is exact to
a four-thousandth of the largest value and takes no chance: the same weights give the same palette.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer_converters.passes.packing import halved
from edge_infer_converters.passes.weight import PALETTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.passes.weight import Weight

_BINS = 8192
_ROUNDS = 40
#: Smaller tensors gain nothing: a palette takes some hundred bytes itself.
_MIN_ELEMENTS = 1024


class Palette(NamedTuple):
    """A packed tensor.

    Attributes:
        codes: uint8, of the tensor's shape: which color each value has.
        colors: float32: the palette.
        scales: float32, of shape [slices, 1, ...]: what each slice is multiplied by.
    """

    codes: np.ndarray
    colors: np.ndarray
    scales: np.ndarray


def pack_palette(values: np.ndarray, axis: int, size: int) -> Palette:
    """Pack a tensor, one scale for each slice along an axis.

    Args:
        values: Finite floats of any shape.
        axis: The axis whose slices have scales of their own.
        size: How many colors there are.
    """
    others = tuple(i for i in range(values.ndim) if i != axis)
    # The root mean square, not the largest: outliers must not move the values that all slices share.
    sizes = np.sqrt(np.square(values, dtype=np.float64).mean(axis=others, keepdims=True))
    scales = halved(np.where(sizes > 0, sizes, 1).astype(np.float32))
    normal = (values / scales).astype(np.float32)
    colors = _centers(normal, size)
    middles = (colors[1:] + colors[:-1]) / 2
    codes = np.searchsorted(middles, normal).astype(np.uint8)
    return Palette(codes, colors, scales)


def unpack_palette(palette: Palette) -> np.ndarray:
    """Return the float32 values."""
    values: np.ndarray = palette.colors[palette.codes] * palette.scales
    return values


def with_palettes(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """Let weights be stored as palettes too, and count bytes as they are on the wire."""
    return tuple(
        replace(weight, is_on_wire=True, encodings=_more(weight) if "int8" in weight.encodings else weight.encodings)
        for weight in weights
    )


def _more(weight: Weight) -> tuple[str, ...]:
    if int(np.prod(weight.shape)) < _MIN_ELEMENTS:
        return weight.encodings
    counted = replace(weight, is_on_wire=True)
    return tuple(sorted((*weight.encodings, *PALETTES), key=lambda encoding: -counted.nbytes(encoding)))


def _centers(values: np.ndarray, size: int) -> np.ndarray:
    """Return the centers of clusters of numbers, in order."""
    low, high = float(values.min()), float(values.max())
    counts, edges = np.histogram(values, _BINS, (low, high if high > low else low + 1))
    places = (edges[1:] + edges[:-1]) / 2
    weights = np.concatenate([[0], np.cumsum(counts)])
    sums = np.concatenate([[0], np.cumsum(counts * places)])
    # From the quantiles of the density's cube root, where the best centers of many lie (Panter and Dite 1951).
    density = np.cumsum(np.cbrt(counts))
    centers = places[np.searchsorted(density, density[-1] * (np.arange(size) + 0.5) / size)]
    for _ in range(_ROUNDS):
        ends = np.searchsorted(places, (centers[1:] + centers[:-1]) / 2)
        first, last = np.concatenate([[0], ends]), np.concatenate([ends, [_BINS]])
        amounts = weights[last] - weights[first]
        centers = np.where(amounts > 0, (sums[last] - sums[first]) / np.maximum(amounts, 1), centers)
    found: np.ndarray = np.sort(centers).astype(np.float32)
    return found
