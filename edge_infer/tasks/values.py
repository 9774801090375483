"""Flat numbers of tensors, with or without numpy."""

from __future__ import annotations

from array import array
from math import prod
from typing import TYPE_CHECKING, cast

from edge_infer.tensors import elements
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

# The element types that a memoryview reads itself, by its own code.
_CODES = {
    DType.FLOAT32: "f",
    DType.FLOAT64: "d",
    DType.INT8: "b",
    DType.INT16: "h",
    DType.INT32: "i",
    DType.INT64: "q",
    DType.UINT8: "B",
    DType.UINT16: "H",
    DType.UINT32: "I",
    DType.UINT64: "Q",
}


def float32(value: float) -> float:
    """Round a number to float32, to the nearest and even."""
    return array("f", (value,))[0]


def flat(tensor: Tensor) -> Sequence[Any]:
    """Return the elements of a tensor in the order of its rows, without a copy where its type allows it."""
    code = _CODES.get(tensor.dtype)
    if code is None:
        return elements.unpack(tensor.data(), tensor.dtype, tensor.size)
    found: Sequence[Any] = cast("Any", tensor.data()).cast(code)
    return found


def floats(values: Iterable[float], shape: Sequence[int]) -> Tensor:
    """Make a float32 tensor, each number rounded once."""
    return Tensor(values if isinstance(values, array) else array("f", values), DType.FLOAT32, tuple(shape))


def rows(tensor: Tensor) -> list[Sequence[Any]]:
    """Return the rows of a tensor: the elements along its last axis, one list for each place of the others."""
    values, width = flat(tensor), tensor.shape[-1] if tensor.shape else 1
    return [values[at : at + width] for at in range(0, prod(tensor.shape), width)] if width else []


def integers(values: Iterable[int], dtype: DType, shape: Sequence[int]) -> Tensor:
    """Make a tensor of whole numbers.

    Raises:
        InputError: A number does not fit the type.
    """
    return Tensor(elements.pack(list(values), dtype), dtype, tuple(shape))
