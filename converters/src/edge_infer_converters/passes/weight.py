"""A stored float tensor that a pass can make smaller, with the size of each encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge_infer_converters.passes import packing

#: From the most bytes to the fewest.
ENCODINGS = ("fp32", "fp16", "int8", "int4")
#: Palettes of k-means by how many colors they have; see `passes.palette`.
PALETTES = {"palette64": 64, "palette32": 32, "palette16": 16}
#: The encodings that lose more than half precision does.
INTEGERS = ("int8", "int4", *PALETTES)
# What `brotli` leaves of the bytes of each encoding, of weights that were trained: measured (benchmarks/transport.py).
_ON_WIRE = {"fp32": 0.93, "fp16": 0.93, "int8": 0.88, "int4": 0.94}
_PALETTE_ON_WIRE = {"palette64": 0.71, "palette32": 0.59, "palette16": 0.47}
# What the nodes and names around a packed weight cost in the file, in bytes: measured, and rounded up.
_OVERHEAD = {"fp32": 0, "fp16": 40, "int8": 110, "int4": 170, **dict.fromkeys(PALETTES, 200)}


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored float tensor that can be made smaller.

    Attributes:
        name: The initializer's name.
        label: What people call it: the node that reads it first, or its own name.
        kind: `table` (rows are gathered), `matrix` (multiplied from the right), `filter` (of a convolution), `other`.
        shape: Its shape.
        axis: The axis of which each slice gets a scale in 8 bits.
        is_transposed: Whether a matrix lies as [outputs, inputs] (`Gemm` with `transB`).
        encodings: What it can be stored as, from the most bytes to the fewest, `fp32` first.
        is_on_wire: Whether bytes are counted as they are on the wire, and not in the file.
    """

    name: str
    label: str
    kind: str
    shape: tuple[int, ...]
    axis: int
    is_transposed: bool
    encodings: tuple[str, ...]
    is_on_wire: bool = False

    def nbytes(self, encoding: str) -> int:
        """Estimate what it takes in the file, or on the wire, with the nodes around it."""
        count = int(np.prod(self.shape))
        slices = self.shape[self.axis] if self.shape else 1
        if encoding in PALETTES:
            share = _PALETTE_ON_WIRE[encoding] if self.is_on_wire else 1.0
            return round(count * share) + 4 * PALETTES[encoding] + 2 * slices + _OVERHEAD[encoding]
        rows, columns = _rows_and_columns(self)
        bodies = {
            "fp32": 4 * count,
            "fp16": 2 * count,
            "int8": count + 2 * slices,
            "int4": rows * -(-columns // packing.BLOCK) * (packing.BLOCK // 2 + 2),
        }
        share = _ON_WIRE[encoding] if self.is_on_wire else 1.0
        return round(bodies[encoding] * share) + _OVERHEAD[encoding]

    def as_rows(self, values: np.ndarray) -> np.ndarray:
        """Lay a matrix or filter as [outputs, inputs], along which its blocks run; a table lies so already."""
        if self.kind == "filter":
            return values.reshape(len(values), -1)
        return values.T if self.kind == "matrix" and not self.is_transposed else values


def _rows_and_columns(weight: Weight) -> tuple[int, int]:
    """Return how many rows of blocks an int4 weight has, and how long they are."""
    if not weight.shape:
        return 1, 1
    first, second = weight.shape[0], int(np.prod(weight.shape[1:]))
    return (second, first) if weight.kind == "matrix" and not weight.is_transposed else (first, second)
