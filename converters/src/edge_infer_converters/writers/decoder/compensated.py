"""A matrix in blocks of 4 bits, chosen so that its products with a text's inputs change least.

Columns are rounded one after another. What the rounding of one adds to the products, the columns behind it take back,
as far as the inputs let them (GPTQ, Frantar et al. 2022, arXiv 2210.17323, with the inverse's Cholesky factor). The
scale of a block is searched when its columns are reached, so that it fits what they have become.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.generation.config import BLOCK
from edge_infer_converters.writers.decoder.blocks import EncodedRows, packed_nibbles, rounded, searched_scales

if TYPE_CHECKING:
    from collections.abc import Sequence

# A hundredth of the mean square is added to each, as in the paper: columns that the text never used stay bounded.
_DAMPING = 0.01
# Columns that are decomposed at once.
_PANEL = 128


class Compensated(NamedTuple):
    """A matrix that was encoded.

    Attributes:
        rows: What the file holds; the error is that of the weights, which is larger than by plain rounding.
        values: The floats that it stands for, [rows, columns].
    """

    rows: EncodedRows
    values: np.ndarray


def compensate(weights: np.ndarray, inputs: np.ndarray) -> Compensated:
    """Encode a matrix in blocks of 4 bits.

    Args:
        weights: Float32 [rows, columns], columns a multiple of 32; not changed.
        inputs: What the matrix is multiplied by, finite floats [inputs, columns].
    """
    sums = np.zeros((inputs.shape[1], inputs.shape[1]))
    add_products(sums, inputs)
    whole, scales = fitted(weights, factor(sums))
    rows = len(weights)
    values = np.ascontiguousarray((whole * scales.astype(np.float32).repeat(BLOCK, 0)).T)
    difference = (values - weights).reshape(-1)
    # The blocks of a row stand together in the file.
    blocks = whole.reshape(-1, BLOCK, rows).transpose(1, 2, 0).reshape(BLOCK, -1)
    file_scales = np.ascontiguousarray(scales.T).tobytes()
    return Compensated(EncodedRows(packed_nibbles(blocks), file_scales, float(difference @ difference)), values)


def fitted(weights: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the integers and scales of a matrix.

    Args:
        weights: Float32 [rows, columns], columns a multiple of 32; not changed.
        upper: What `factor` gave of its inputs.

    Returns:
        The integers from -8 to 7, float32 [columns, rows], and the scales, float16 [columns / 32, rows].
    """
    # Columns are rows here: each is one vector, and those behind it are one matrix.
    left = np.array(weights.T, np.float32, order="C")
    columns, rows = left.shape
    whole, scales = np.empty_like(left), np.empty((columns // BLOCK, rows), "<f2")
    for block, start in enumerate(range(0, columns, BLOCK)):
        part = left[start : start + BLOCK]
        here, behind = np.split(upper[start : start + BLOCK, start:].astype(np.float32), [BLOCK], axis=1)
        weight = 1 / np.square(np.diagonal(here))
        scales[block] = searched_scales(part, weight / weight.max())
        scale = scales[block].astype(np.float32)
        lost = np.empty_like(part)
        for column in range(BLOCK):
            found = rounded(part[column : column + 1], scale, -8, 7)[0]
            whole[start + column] = found
            lost[column] = (part[column] - found * scale) / here[column, column]
            part[column + 1 :] -= here[column, column + 1 :, None] * lost[column]
        left[start + BLOCK :] -= behind.T @ lost
    return whole, scales


def add_products(sums: np.ndarray, inputs: np.ndarray) -> None:
    """Add to the upper half of sums of products, float64 [columns, columns], those of more inputs."""
    for part in _parts(len(sums)):
        sums[part, part.start :] += inputs[:, part].T @ inputs[:, part.start :]


def factor(sums: np.ndarray) -> np.ndarray:
    """Put the upper Cholesky factor of the inverse of sums of products in their place, and return it.

    The sums, turned about both their diagonals, are R R' with R lower; R's inverse, turned back, is the factor. All of
    it happens in one float64 [columns, columns], where a library's inverse takes five. Columns of no inputs count as
    ones of few.
    """
    diagonal = np.einsum("ii->i", sums)
    diagonal += _DAMPING * (float(diagonal.mean()) or 1.0)
    lower, parts = sums[::-1, ::-1], _parts(len(sums))
    _decompose(lower, parts)
    _invert(lower, parts)
    return sums


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + _PANEL, count)) for start in range(0, count, _PANEL)]


def _decompose(lower: np.ndarray, parts: Sequence[slice]) -> None:
    """Put the Cholesky factor in the place of a matrix, of which the lower half is read."""
    for number, part in enumerate(parts):
        lower[part, part] = np.linalg.cholesky(lower[part, part])
        below = lower[part.stop :, part]
        below[:] = below @ np.linalg.inv(lower[part, part]).T
        for other in parts[number + 1 :]:
            lower[other.start :, other] -= lower[other.start :, part] @ lower[other, part].T


def _invert(lower: np.ndarray, parts: Sequence[slice]) -> None:
    """Put the inverse in the place of a lower triangle; what stands above it stays, but for the parts' own."""
    for part in reversed(parts):
        lower[part, part] = np.linalg.inv(lower[part, part])
        behind, below = lower[part.stop :, part.stop :], lower[part.stop :, part] @ lower[part, part]
        lower[part.stop :, part] = 0
        for start in range(0, len(below), _PANEL):
            lower[part.stop + start :, part] -= behind[start:, start : start + _PANEL] @ below[start : start + _PANEL]
