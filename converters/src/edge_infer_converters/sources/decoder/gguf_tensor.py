"""The tensors of a GGUF file: their values as float32, and their blocks as the weight file takes them over.

Layouts: ggml's `block_q4_0`, `block_q8_0` and `block_q6_K` (ggml-common.h). A block of the first two has a float16
scale and 32 integers, which are those of our int4 and int8: only scales and values are put apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.generation.weight_file import Encoding
    from edge_infer_converters.sources.decoder.gguf_file import GgufFile

#: The type of tensors whose blocks an encoding takes over.
_TAKEN: dict[str, Encoding] = {"Q4_0": "int4", "Q8_0": "int8"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor where the file is mapped.

    Attributes:
        dtype: ggml's name of its type.
        shape: Rows first.
        data: Bytes [rows, bytes of a row], or [bytes] of a vector.
        order: Which row of the file each row is; None for the same.
    """

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray
    order: np.ndarray | None = None

    @property
    def is_float(self) -> bool:
        """Whether the values can be read: those of every type that the reader lets pass."""
        return True

    @property
    def native(self) -> Encoding | None:
        """The encoding that holds exactly these values in as few bytes."""
        return _TAKEN.get(self.dtype)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows as float32."""
        part = self._bytes(start, stop)
        return _READERS[self.dtype](part).reshape(part.shape[0], *self.shape[1:])

    def blocks(self, start: int, stop: int, encoding: Encoding) -> tuple[bytes, bytes] | None:
        """Return values and scales of some rows; None where the encoding does not hold the blocks as they are.

        Blocks of 4 bits are blocks of 8 bits with the same scale. The kernels have no -128.
        """
        if self.native is None or (self.native == "int8" and encoding != "int8"):
            return None
        scales, values = _parts(self._bytes(start, stop), 18 if self.native == "int4" else 34)
        if encoding == "int4":
            return values.tobytes(), scales.tobytes()
        if encoding != "int8":
            return None
        whole = values.view(np.int8) if self.native == "int8" else _nibbles(values)
        return None if whole.min(initial=0) == -128 else (whole.tobytes(), scales.tobytes())

    def ordered(self, order: np.ndarray) -> GgufTensor:
        """Return the tensor with its rows in another order."""
        return replace(self, order=order)

    def transposed(self) -> GgufTensor:
        """Return the tensor: GGUF files have a row for each output already."""
        return self

    def _bytes(self, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self.data[start:stop] if self.order is None else self.data[self.order[start:stop]])


def gguf_tensors(file: GgufFile) -> dict[str, GgufTensor]:
    """Return the tensors of a file by their name; nothing is read yet.

    Raises:
        ConversionError: A vector is stored in blocks.
    """
    found = {}
    for name, one in file.tensors.items():
        if len(one.shape) == 1 and one.layout.values > 1:
            raise file.wrong(f"the vector `{name}` is stored as {one.layout.name}, expected F32", tensor=name)
        data = np.frombuffer(file.data, np.uint8, one.nbytes, one.start).reshape(one.shape[0], -1)
        found[name] = GgufTensor(one.layout.name, one.shape, data)
    return found


def _floats(kind: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda data: data.reshape(-1).view(kind).astype(np.float32)


def _upper_halves(data: np.ndarray) -> np.ndarray:
    return (data.reshape(-1).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _parts(data: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales and the values of blocks of 32, bytes [blocks, 2] and [blocks, 16 or 32]."""
    blocks = data.reshape(-1, nbytes)
    return np.ascontiguousarray(blocks[:, :2]), np.ascontiguousarray(blocks[:, 2:])


def _nibbles(values: np.ndarray) -> np.ndarray:
    """Return the integers of blocks of 4 bits, int8 from -8 to 7."""
    return np.concatenate([values & 15, values >> 4], axis=1).astype(np.int8) - np.int8(8)


def _q4_0(data: np.ndarray) -> np.ndarray:
    scales, values = _parts(data, 18)
    return _nibbles(values).astype(np.float32) * scales.view("<f2").astype(np.float32)


def _q8_0(data: np.ndarray) -> np.ndarray:
    scales, values = _parts(data, 34)
    return values.view(np.int8).astype(np.float32) * scales.view("<f2").astype(np.float32)


def _q6_k(data: np.ndarray) -> np.ndarray:
    """Blocks of 256: 4 lower bits of each value, 2 upper ones, 16 scales of int8, and their float16 scale."""
    blocks = data.reshape(-1, 210)
    count = len(blocks)
    low, high, scales, scale = np.split(blocks, [128, 192, 208], axis=1)
    lower = (low.reshape(count, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15
    upper = (high.reshape(count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)) & 3
    whole = (lower.reshape(count, 16, 16) | (upper.reshape(count, 16, 16) << 4)).astype(np.float32) - np.float32(32)
    factors = np.ascontiguousarray(scale).view("<f2").astype(np.float32) * scales.view(np.int8).astype(np.float32)
    return whole * factors.reshape(count, 16, 1)


_READERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": _floats("<f4"),
    "F16": _floats("<f2"),
    "BF16": _upper_halves,
    "Q4_0": _q4_0,
    "Q8_0": _q8_0,
    "Q6_K": _q6_k,
}
