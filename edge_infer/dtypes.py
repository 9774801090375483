"""The element types: numpy's names, their sizes, and how the buffer protocol spells them."""

from __future__ import annotations

from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, listed

if TYPE_CHECKING:
    from collections.abc import Sequence


class DType(StrEnum):
    """The element types, spelt as numpy spells them. A `DType` is its name: `DType.FLOAT32 == "float32"`."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT4 = "int4"
    UINT4 = "uint4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    BOOL = "bool"
    STRING = "string"

    @property
    def bits(self) -> int:
        """The bits of one element; 0 for strings, whose elements have no fixed size."""
        return _BITS[self]

    @property
    def buffer_format(self) -> str:
        """The `struct` code that the buffer protocol uses for it; bfloat16 travels as `H`, 4-bit types as `B`."""
        return _FORMATS[self]

    def nbytes(self, shape: Sequence[int]) -> int:
        """Count the bytes of a tensor of this dtype: `shape` in elements."""
        return (prod(shape) * _BITS[self] + 7) // 8

    @classmethod
    def parse(cls, name: object) -> DType:
        """Read a dtype from its name or from a `numpy.dtype`.

        Raises:
            InputError: The name is none of the known ones.
        """
        try:
            return cls(_ALIASES.get(str(name), str(name)))
        except ValueError:
            known = [str(member) for member in cls]
            raise InputError(
                f"DType `{name}` is not known; choose from {listed(known)}", dtype=str(name), allowed=known
            ) from None


_FORMATS = {
    DType.FLOAT32: "f",
    DType.FLOAT64: "d",
    DType.FLOAT16: "e",
    DType.BFLOAT16: "H",
    DType.INT4: "B",
    DType.UINT4: "B",
    DType.INT8: "b",
    DType.UINT8: "B",
    DType.INT16: "h",
    DType.UINT16: "H",
    DType.INT32: "i",
    DType.UINT32: "I",
    DType.INT64: "q",
    DType.UINT64: "Q",
    DType.BOOL: "?",
    DType.STRING: "",
}
_BITS = {
    DType.FLOAT32: 32,
    DType.FLOAT64: 64,
    DType.FLOAT16: 16,
    DType.BFLOAT16: 16,
    DType.INT4: 4,
    DType.UINT4: 4,
    DType.INT8: 8,
    DType.UINT8: 8,
    DType.INT16: 16,
    DType.UINT16: 16,
    DType.INT32: 32,
    DType.UINT32: 32,
    DType.INT64: 64,
    DType.UINT64: 64,
    DType.BOOL: 8,
    DType.STRING: 0,
}
# `object` and `<U5` are what numpy calls arrays of strings.
_ALIASES = {"object": "string", "str": "string", "bool_": "bool"}

# The buffer formats by which a dtype may arrive. C compilers disagree on the size of `l`, and ctypes writes `<f`.
_FROM_FORMAT = {
    "f": DType.FLOAT32,
    "d": DType.FLOAT64,
    "e": DType.FLOAT16,
    "b": DType.INT8,
    "B": DType.UINT8,
    "c": DType.UINT8,
    "h": DType.INT16,
    "H": DType.UINT16,
    "i": DType.INT32,
    "I": DType.UINT32,
    "q": DType.INT64,
    "Q": DType.UINT64,
    "?": DType.BOOL,
}


def dtype_of_buffer(view: memoryview) -> DType | None:
    """Tell which dtype a buffer holds by its format, or None where no dtype has that format."""
    code = view.format.lstrip("@=<")
    if code in ("l", "L"):
        return {(4, "l"): DType.INT32, (4, "L"): DType.UINT32, (8, "l"): DType.INT64, (8, "L"): DType.UINT64}.get(
            (view.itemsize, code)
        )
    return _FROM_FORMAT.get(code)
