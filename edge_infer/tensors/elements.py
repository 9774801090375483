"""Elements of a tensor between Python values, bytes and the buffer protocol, without numpy.

bfloat16 is the upper half of a float32. Two 4-bit values share a byte, the first in the low half, as in ONNX and
TFLite.
"""

from __future__ import annotations

import struct
from math import prod

from edge_infer.errors import InputError
from edge_infer.tensors.dtypes import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def argmax(values: list[Any]) -> int:
    """Return the index of the largest value: the first of equal ones, and a NaN before all."""
    best = 0
    for i, value in enumerate(values):
        if value != value:
            return i
        if value > values[best]:
            best = i
    return best


def flatten(values: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested sequences and their elements."""
    if not isinstance(values, (list, tuple)):
        return (), [values]
    if not values:
        return (0,), []
    parts = [flatten(value) for value in values]
    shape = parts[0][0]
    for i, (found, _) in enumerate(parts):
        if found != shape:
            raise InputError(f"Nested lists are ragged: element 0 has shape {shape}, element {i} has shape {found}")
    return (len(values), *shape), [value for _, flat in parts for value in flat]


def nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """Return flat elements as nested lists; the only element where the shape is ()."""
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return list(flat)
    step = prod(shape[1:])
    return [nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def pack(flat: list[Any], dtype: DType) -> bytes:
    """Write elements as little-endian bytes.

    Raises:
        InputError: One does not fit the dtype.
    """
    if dtype is DType.BOOL and not all(isinstance(value, bool) for value in flat):
        raise InputError("A value does not fit bool: it is neither True nor False", dtype=str(dtype))
    try:
        if dtype is DType.BFLOAT16:
            return struct.pack(f"<{len(flat)}H", *[_to_bfloat16(value) for value in flat])
        if dtype in (DType.INT4, DType.UINT4):
            low, high = (-8, 7) if dtype is DType.INT4 else (0, 15)
            if any(not low <= value <= high for value in flat):
                raise InputError(f"A value does not fit {dtype}: {low} to {high}")
            nibbles = [value & 15 for value in flat] + [0] * (len(flat) % 2)
            return bytes(nibbles[i] | nibbles[i + 1] << 4 for i in range(0, len(nibbles), 2))
        return struct.pack(f"<{len(flat)}{dtype.buffer_format}", *flat)
    except (struct.error, OverflowError, TypeError) as failure:
        raise InputError(f"A value does not fit {dtype}: {failure}", dtype=str(dtype)) from failure


def _to_bfloat16(value: float) -> int:
    """Round a float to the nearest bfloat16, ties to even, and return its 16 bits."""
    bits = int.from_bytes(struct.pack("<f", value), "little")
    if value != value:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def unpack(data: memoryview, dtype: DType, count: int) -> list[Any]:
    """Read as many elements from little-endian bytes."""
    if dtype is DType.BFLOAT16:
        widened = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, 2 * count, 2))
        return list(struct.unpack_from(f"<{count}f", widened))
    if dtype in (DType.INT4, DType.UINT4):
        nibbles = [nibble for byte in data[: (count + 1) // 2] for nibble in (byte & 15, byte >> 4)][:count]
        return [nibble - 16 if nibble > 7 else nibble for nibble in nibbles] if dtype is DType.INT4 else nibbles
    return list(struct.unpack_from(f"<{count}{dtype.buffer_format}", data))


def shaped(data: memoryview, dtype: DType, shape: tuple[int, ...]) -> memoryview:
    """Give flat bytes their format and shape. 4-bit types stay flat bytes: no format of the protocol describes them."""
    if dtype.bits < 8:
        return data
    if prod(shape):
        code: Any = dtype.buffer_format
        view: memoryview = data.cast(code, shape)
        return view
    # memoryview.cast cannot make a dimension of 0; a ctypes array can, and numpy reads it.
    return memoryview(ctypes_array(dtype, shape)())


def ctypes_array(dtype: DType, shape: tuple[int, ...]) -> Any:
    """Build the ctypes array type of a dtype and shape; ctypes has no half precision, whose bits stand in as uint16."""
    import ctypes

    if dtype.bits < 8:
        shape = (dtype.nbytes(shape),)
    array: Any = {
        "f": ctypes.c_float,
        "d": ctypes.c_double,
        "e": ctypes.c_uint16,
        "b": ctypes.c_int8,
        "B": ctypes.c_uint8,
        "h": ctypes.c_int16,
        "H": ctypes.c_uint16,
        "i": ctypes.c_int32,
        "I": ctypes.c_uint32,
        "q": ctypes.c_int64,
        "Q": ctypes.c_uint64,
        "?": ctypes.c_bool,
    }[dtype.buffer_format]
    for dim in reversed(shape):
        array = array * dim
    return array
