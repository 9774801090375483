"""Pack a float tensor into integer codes of fewer bits, with scales.

Scales are symmetric: a code times its scale is the value, zero is exact. 8 bits use one scale for each slice (an
output channel, a row of a table), 4 bits one for each block of neighbours along the last axis. Scales are numbers of
half precision wherever that has its full accuracy: codes are chosen for the rounded scale, so nothing is lost by it,
and a block of 4 bits takes 18 bytes and not 20.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: How many neighbours share a scale in 4 bits: what llama.cpp and ONNX Runtime use.
BLOCK = 32
# What a block's largest value may be clipped to, tried in turn; the least squared error wins (convert.md A5).
_CLIPPING = (1.0, 0.95, 0.9, 0.85, 0.8)
# How often scale and codes are fitted to one another afterwards: a second time gains a hundredth of a dB.
_REFITS = 1
# Values handled at once, so that packing a large table needs little memory.
_CHUNK = 1 << 20
# The smallest and largest numbers that half precision holds with all of its 11 bits.
_HALF_RANGE = (2.0**-14, 65504.0)


class Packed(NamedTuple):
    """A packed tensor.

    Attributes:
        codes: int8; for 4 bits in -8 .. 7, of shape [rows, blocks * BLOCK], the last block filled up with zeros.
        scales: float32; [slices, 1, ...] for 8 bits, [rows, blocks] for 4.
    """

    codes: np.ndarray
    scales: np.ndarray


def pack_slices(values: np.ndarray, axis: int) -> Packed:
    """Pack into 8 bits, one scale for each slice along an axis.

    Args:
        values: Finite floats of any shape.
        axis: The axis whose slices have scales of their own.
    """
    others = tuple(i for i in range(values.ndim) if i != axis)
    largest = np.maximum(values.max(axis=others, keepdims=True), -values.min(axis=others, keepdims=True))
    scales = halved(np.where(largest > 0, largest / 127, 1).astype(np.float32))
    codes = np.empty(values.shape, np.int8)
    step = max(1, _CHUNK // max(values[:1].size, 1))
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        codes[part] = np.clip(np.rint(values[part] / (scales[part] if axis == 0 else scales)), -127, 127)
    return Packed(codes, scales)


def unpack_slices(packed: Packed) -> np.ndarray:
    """Return the float32 values of 8-bit slices."""
    values: np.ndarray = packed.codes.astype(np.float32)
    values *= packed.scales
    return values


def pack_blocks(rows: np.ndarray) -> Packed:
    """Pack into 4 bits, one scale for each block along the last axis, clipped where that lessens the squared error.

    The block's extreme value, whatever its sign, becomes -8, the only code of that size.

    Args:
        rows: Finite floats of shape [rows, columns].
    """
    count, columns = rows.shape
    blocks = -(-columns // BLOCK)
    codes = np.zeros((count, blocks * BLOCK), np.int8)
    scales = np.ones((count, blocks), np.float32)
    step = max(1, _CHUNK // max(columns, 1))
    for start in range(0, count, step):
        part = rows[start : start + step].astype(np.float32)
        padded = np.zeros((len(part), blocks * BLOCK), np.float32)
        padded[:, :columns] = part
        chunk_codes, chunk_scales = _pack_chunk(padded.reshape(-1, BLOCK))
        codes[start : start + step] = chunk_codes.reshape(len(part), -1)
        scales[start : start + step] = chunk_scales.reshape(len(part), -1)
    return Packed(codes, scales)


def unpack_blocks(packed: Packed, columns: int) -> np.ndarray:
    """Return the float32 values of 4-bit blocks, without what filled up the last one."""
    count, blocks = packed.scales.shape
    values = packed.codes.astype(np.float32).reshape(count, blocks, BLOCK)
    values *= packed.scales[:, :, None]
    return values.reshape(count, -1)[:, :columns]


def nibbles(codes: np.ndarray) -> np.ndarray:
    """Lay two neighbouring 4-bit codes into each byte, the first in the low half, as 0 .. 15 (code + 8)."""
    unsigned = (codes + 8).astype(np.uint8)
    packed: np.ndarray = unsigned[..., ::2] | (unsigned[..., 1::2] << 4)
    return packed


def halved(scales: np.ndarray) -> np.ndarray:
    """Round to half precision those float32 numbers that it holds with all of its bits; the others stay as they are."""
    low, high = _HALF_RANGE
    sizes = np.abs(scales)
    is_held = (sizes >= low) & (sizes <= high)
    rounded: np.ndarray = scales.copy()
    rounded[is_held] = scales[is_held].astype(np.float16)
    return rounded


def is_half(scales: np.ndarray) -> bool:
    """Tell whether half precision holds these numbers exactly."""
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())


def _pack_chunk(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    best_error = np.full(len(blocks), np.inf, np.float32)
    best_codes = np.zeros(blocks.shape, np.int8)
    best_scales = np.ones((len(blocks), 1), np.float32)

    def take_better(scales: np.ndarray) -> None:
        codes = np.clip(np.rint(blocks / scales), -8, 7)
        error = np.square(codes * scales - blocks).sum(axis=1)
        is_better = error < best_error
        best_error[is_better] = error[is_better]
        best_codes[is_better] = codes[is_better].astype(np.int8)
        best_scales[is_better] = scales[is_better]

    for clipping in _CLIPPING:
        take_better(halved(np.where(extreme == 0, 1, extreme * np.float32(-clipping / 8)).astype(np.float32)))
    for _ in range(_REFITS):
        # The scale of least squares for the codes as they are.
        codes = best_codes.astype(np.float32)
        energy = np.square(codes).sum(axis=1, keepdims=True)
        fitted = (codes * blocks).sum(axis=1, keepdims=True) / np.maximum(energy, 1)
        take_better(halved(np.where(fitted == 0, best_scales, fitted)))
    return best_codes, best_scales
