"""Floats as integers of 8 or 4 bits, symmetric around zero, as LiteRT's kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: The elements that share a scale where 4 bits have one for each block: LiteRT's kernels know 32, 64, 128 and 256.
BLOCK = 32
# The largest of a block is 7 at least. Cutting off the few outliers of a block leaves smaller steps for the others:
# of these the one of least squared error is taken. -8 exists, so a little beyond 7 costs nothing on that side.
_INT4_LIMITS = (7.0, 7.6, 8.3, 9.1)
_ROWS_AT_ONCE = 4096


class Integers(NamedTuple):
    """An array in integers.

    Attributes:
        values: The integers, as int8.
        scales: What one step is worth: for each index of the axis, or [rows, blocks].
    """

    values: np.ndarray
    scales: np.ndarray


def int8(values: np.ndarray, axis: int, least: np.ndarray | None = None) -> Integers:
    """Store an array in -127 to 127, one scale for each index of an axis, none below `least`."""
    others = tuple(i for i in range(values.ndim) if i != axis)
    largest = np.abs(values).max(axis=others, keepdims=True, initial=0.0).astype(np.float64)
    limits = np.float64(np.finfo(np.float32).tiny) if least is None else least.reshape(largest.shape)
    scales = np.maximum(np.maximum(largest / 127, limits), np.finfo(np.float32).tiny).astype(np.float32)
    integers = np.rint(values / scales).astype(np.int8)
    return Integers(integers, scales.reshape(-1))


def int4_blocks(values: np.ndarray) -> Integers:
    """Store a matrix in -8 to 7, one scale in float16 for each `BLOCK` elements of a row."""
    integers, scales = _int4_rows(values.reshape(len(values), -1, BLOCK), np.float16)
    return Integers(integers.reshape(values.shape), scales)


def has_blocks(values: np.ndarray) -> bool:
    """Tell whether a matrix can be cut into blocks."""
    return values.ndim == 2 and values.shape[1] % BLOCK == 0


def _int4_rows(rows: np.ndarray, scale_type: type) -> tuple[np.ndarray, np.ndarray]:
    """Find integers and scales of [rows, blocks, elements]."""
    found = [_int4_some(rows[i : i + _ROWS_AT_ONCE], scale_type) for i in range(0, len(rows), _ROWS_AT_ONCE)]
    return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])


def _int4_some(rows: np.ndarray, scale_type: type) -> tuple[np.ndarray, np.ndarray]:
    rows = rows.astype(np.float32)
    largest = np.abs(rows).max(axis=2, keepdims=True)
    tiny = np.finfo(scale_type).tiny
    best_error = np.full(largest.shape, np.inf, np.float32)
    best = np.zeros(rows.shape, np.int8)
    best_scales = np.full(largest.shape, tiny, scale_type)
    for limit in _INT4_LIMITS:
        scales = np.maximum(largest / limit, tiny).astype(scale_type)
        wide = scales.astype(np.float32)
        integers = np.clip(np.rint(rows / wide), -8, 7)
        error = np.square(integers * wide - rows).sum(axis=2, keepdims=True)
        is_better = error < best_error
        best = np.where(is_better, integers.astype(np.int8), best)
        best_scales = np.where(is_better, scales, best_scales)
        best_error = np.minimum(error, best_error)
    return best, best_scales[..., 0]
