"""Rows of floats to the encodings of a weight file: blocks of 32 columns in 4 or 8 bits, halves and floats.

Blocks have the layout of GGUF's Q4_0 and Q8_0 (ggml, `ggml-quants.c`), with scales beside the values instead of between
them. The scale of a 4-bit block is searched: of three candidates, each made best by least squares for the integers that
it gives, the one with the smallest squared error is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer.generation.config import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.generation.weight_file import Encoding

# Of the plain scale, which maps the largest value to -8. More candidates gain little: on normal values the squared
# error is .901 of plain rounding's with these three, .888 with eleven.
_CANDIDATES = (0.9, 1.0, 1.1)
_LARGEST_HALF = 65504.0
_SMALLEST_SCALE = np.float32(1e-30)


class EncodedRows(NamedTuple):
    """Some rows of a tensor.

    Attributes:
        values: Their bytes, rows first.
        scales: The bytes of the scales, float16; empty where there are none.
        error: The sum of squared differences to the floats.
    """

    values: bytes
    scales: bytes
    error: float


def encode_rows(rows: np.ndarray, encoding: Encoding) -> EncodedRows:
    """Encode rows.

    Args:
        rows: Float32, finite; [rows, columns] with columns a multiple of 32 for blocks.
        encoding: One of the weight file's.

    Raises:
        ConversionError: A value, or the scale of a block, is too large for float16.
    """
    return _ENCODERS[encoding](rows)


def _floats(rows: np.ndarray) -> EncodedRows:
    return EncodedRows(rows.astype("<f4").tobytes(), b"", 0.0)


def _halves(rows: np.ndarray) -> EncodedRows:
    _check_range(rows, 1.0, "a value")
    halves = rows.astype("<f2")
    difference = (halves.astype(np.float32) - rows).reshape(-1)
    return EncodedRows(halves.tobytes(), b"", float(np.dot(difference, difference)))


def _bytes(rows: np.ndarray) -> EncodedRows:
    _check_range(rows, 127.0, "a block's scale")
    blocks = _blocks(rows)
    scales = (np.maximum(blocks.max(0), -blocks.min(0)) / np.float32(127)).astype("<f2")
    whole = rounded(blocks, scales.astype(np.float32), -127, 127)
    values = np.ascontiguousarray(whole.astype(np.int8).T)
    return EncodedRows(values.tobytes(), scales.tobytes(), _error(blocks, whole, scales))


def _nibbles(rows: np.ndarray) -> EncodedRows:
    _check_range(rows, 8.0, "a block's scale")
    blocks = _blocks(rows)
    scales = searched_scales(blocks).astype("<f2")
    whole = rounded(blocks, scales.astype(np.float32), -8, 7)
    error = _error(blocks, whole, scales)
    return EncodedRows(packed_nibbles(whole), scales.tobytes(), error)


def packed_nibbles(whole: np.ndarray) -> bytes:
    """Return the bytes of integers from -8 to 7, float32 [32, blocks]."""
    codes = (whole + np.float32(8)).astype(np.uint8)
    packed = codes[: BLOCK // 2] | (codes[BLOCK // 2 :] << 4)
    return np.ascontiguousarray(packed.T).tobytes()


_ENCODERS: dict[Encoding, Callable[[np.ndarray], EncodedRows]] = {
    "f32": _floats,
    "f16": _halves,
    "int8": _bytes,
    "int4": _nibbles,
}


def _blocks(rows: np.ndarray) -> np.ndarray:
    """Return the blocks as columns [32, blocks]: sums over a block are then sums of whole rows, which is fast."""
    return np.ascontiguousarray(rows.reshape(-1, BLOCK).T)


def searched_scales(blocks: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the best scale of each block for 4 bits.

    Args:
        blocks: Float32 [32, blocks].
        weights: What the squared error of each of the 32 counts; all the same unless given.

    Returns:
        Float32 [blocks].
    """
    low, high = blocks.min(0), blocks.max(0)
    largest = np.where(high > -low, high, low)
    plain = _divided(largest, np.float32(-8))
    best, scales = np.full_like(largest, -1), np.zeros_like(largest)
    products = np.empty_like(blocks)
    for candidate in _CANDIDATES:
        whole = rounded(blocks, plain / np.float32(candidate), -8, 7)
        weighed = whole if weights is None else whole * weights[:, None]
        along = np.multiply(weighed, blocks, out=products).sum(0)
        length = np.multiply(weighed, whole, out=products).sum(0)
        scale = _divided(along, length)  # the least squares' one for these integers
        gain = along * scale  # what it takes off the squared error
        is_better = gain > best
        best, scales = np.where(is_better, gain, best), np.where(is_better, scale, scales)
    return np.asarray(scales)


def rounded(blocks: np.ndarray, scales: np.ndarray, least: int, most: int) -> np.ndarray:
    """Return the integers of blocks as floats.

    Args:
        blocks: Float32 [values, blocks].
        scales: Float32 [blocks]; the integers of a block whose scale is as good as 0 are 0.
        least: The smallest integer.
        most: The largest.
    """
    is_zero = np.abs(scales) < _SMALLEST_SCALE  # whose inverse may overflow
    found = blocks * _divided(np.float32(1), np.where(is_zero, np.float32(0), scales))
    np.rint(found, out=found)
    np.maximum(found, np.float32(least), out=found)
    np.minimum(found, np.float32(most), out=found)
    return np.asarray(found)


def _error(blocks: np.ndarray, whole: np.ndarray, scales: np.ndarray) -> float:
    difference = (whole * scales.astype(np.float32) - blocks).reshape(-1)
    return float(np.dot(difference, difference))


def _divided(over: np.ndarray | np.float32, under: np.ndarray | np.float32) -> np.ndarray:
    """Divide; by 0 gives 0."""
    shape = np.broadcast_shapes(np.shape(over), np.shape(under))
    return np.divide(over, under, out=np.zeros(shape, np.float32), where=np.asarray(under) != 0)


def _check_range(rows: np.ndarray, steps: float, what: str) -> None:
    largest = float(np.abs(rows).max(initial=0.0))
    if largest > _LARGEST_HALF * steps:
        raise ConversionError(
            f"A weight is {largest:.3g}: float16 cannot hold {what} of that size",
            hint="--precision fp32",
            got=largest,
        )
