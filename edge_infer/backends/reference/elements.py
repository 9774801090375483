"""ONNX's element types as numpy's, and constants as arrays.

numpy has no types of 8 bits and fewer with a fraction, no bfloat16 and none of 4 bits and fewer. Their bits lie here in
arrays of one field that bears the type's name: these can be moved and cut as others can, and no one computes with bits.
The formats are those of https://onnx.ai/onnx/technical.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array
    from edge_infer.formats.onnx_model import Constant, SparseConstant

#: By the numbers of TensorProto.DataType.
PLAIN: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "object", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
}  # fmt: skip


class Small(NamedTuple):
    """A type that numpy lacks.

    Attributes:
        name: Its name.
        bits: The bits of an element.
        exponent: The bits of its exponent; 0 for integers.
        bias: What is taken from the exponent.
        special: Which bit patterns are no numbers: `ieee`, `fn` (all ones is NaN), `fnuz` (minus zero is NaN), `none`.
        is_signed: Whether there is a sign.
    """

    name: str
    bits: int
    exponent: int = 0
    bias: int = 0
    special: str = "none"
    is_signed: bool = True


SMALL: dict[int, Small] = {
    16: Small("bfloat16", 16, 8, 127, "ieee"),
    17: Small("float8_e4m3fn", 8, 4, 7, "fn"),
    18: Small("float8_e4m3fnuz", 8, 4, 8, "fnuz"),
    19: Small("float8_e5m2", 8, 5, 15, "ieee"),
    20: Small("float8_e5m2fnuz", 8, 5, 16, "fnuz"),
    21: Small("uint4", 4, is_signed=False),
    22: Small("int4", 4),
    23: Small("float4_e2m1fn", 4, 2, 1),
    24: Small("float8_e8m0fnu", 8, 8, 127, "fn", is_signed=False),
    25: Small("uint2", 2, is_signed=False),
    26: Small("int2", 2),
}
_BY_NAME = {small.name: small for small in SMALL.values()}
_NUMBERS = {small.name: number for number, small in SMALL.items()} | {name: n for n, name in PLAIN.items()}


def numpy_dtype(kind: int) -> np.dtype[Any]:
    """Return the dtype of an element type by its number.

    Raises:
        ValueError: There is none of that number.
    """
    if kind in PLAIN:
        return np.dtype(PLAIN[kind])
    if kind not in SMALL:
        raise ValueError(f"the element type {kind} is not known")
    return dtype_of(SMALL[kind])


@cache
def dtype_of(small: Small) -> np.dtype[Any]:
    """Return the dtype of the arrays that hold the bits of a small type."""
    return np.dtype([(small.name, "u2" if small.bits > 8 else "u1")])


def number_of(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of a dtype."""
    small = small_of(dtype)
    return _NUMBERS[small.name if small else "object" if dtype.kind in "OUS" else dtype.name]


def name_of(kind: int) -> str:
    """Return numpy's name of an element type; `string` for texts."""
    if kind == 8:
        return "string"
    return SMALL[kind].name if kind in SMALL else numpy_dtype(kind).name


def small_of(dtype: np.dtype[Any]) -> Small | None:
    """Return the small type that arrays of a dtype hold; None for what numpy has itself."""
    return _BY_NAME[dtype.names[0]] if dtype.names else None


@cache
def _values(small: Small) -> Array:
    """Return the number that each bit pattern stands for."""
    codes = np.arange(1 << small.bits)
    if not small.exponent:
        return codes - ((codes >> (small.bits - 1)) << small.bits) * small.is_signed
    mantissa = small.bits - small.exponent - small.is_signed
    sign = np.where((codes >> (small.bits - 1)) & small.is_signed, -1.0, 1.0)
    power = (codes >> mantissa) & ((1 << small.exponent) - 1)
    rest = codes & ((1 << mantissa) - 1)
    if small.name == "float8_e8m0fnu":
        found = np.exp2(power - 127.0)
    else:
        found = np.where(power, 1 + rest / (1 << mantissa), rest / (1 << mantissa) * 2)
        found = sign * found * np.exp2(power.astype(float) - small.bias)
    top = (1 << small.exponent) - 1
    if small.special == "ieee":
        found = np.where(power == top, np.where(rest, np.nan, sign * np.inf), found)
    elif small.special == "fn":
        found = np.where((power == top) & (rest == (1 << mantissa) - 1), np.nan, found)
    elif small.special == "fnuz":
        found = np.where(codes == 1 << (small.bits - 1), np.nan, found)
    return found


def decode(array: Array) -> Array:
    """Return what bits stand for: float32 of small floats, int8 or uint8 of small integers; others are unchanged."""
    small = small_of(array.dtype)
    if small is None:
        return array
    bits = array[small.name]
    if small.name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    wide = np.float32 if small.exponent else np.int8 if small.is_signed else np.uint8
    return _values(small).astype(wide)[bits]


def encode(array: Array, small: Small, *, saturate: bool = True, towards: str = "nearest") -> Array:
    """Return numbers as bits of a small type, rounded to the nearest, ties to even.

    Args:
        array: The numbers.
        small: The type.
        saturate: Whether a float beyond the range becomes the largest number, and not an infinity or NaN.
        towards: Of float8_e8m0fnu, which has powers of two only: `nearest`, `up` or `down`.
    """
    if not small.exponent:
        wide = array.astype(np.int64) if array.dtype.kind in "iub" else np.trunc(array.astype(np.float64))
        bits = wide.astype(np.int64) & ((1 << small.bits) - 1)
        return bits.astype(np.uint8).view(dtype_of(small))
    if small.name == "bfloat16":
        return _brain(array)
    if small.name == "float8_e8m0fnu":
        return _power(array.astype(np.float32), saturate=saturate, towards=towards)
    return _rounded(array, small, saturate=saturate)


def _brain(array: Array) -> Array:
    value = array.astype(np.float32)
    bits = value.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = np.where(np.isnan(value), ((bits >> 16) | 0x40).astype(np.uint16), rounded)
    return np.asarray(rounded).view(dtype_of(SMALL[16])).reshape(value.shape)


def _power(value: Array, *, saturate: bool, towards: str) -> Array:
    bits = value.view(np.uint32).astype(np.int64)
    power = (bits >> 23) & 255
    rest = bits & 0x7FFFFF
    if towards == "up":
        more = ((rest > 0) & (power > 0)) | ((power == 0) & (rest > 0x400000))
    elif towards == "down":
        more = np.zeros(rest.shape, bool)
    else:
        more = (rest >= 0x400000) & ((power > 0) | (rest > 0x400000))
    power = power + more
    if saturate:
        power = np.where((power > 254) & np.isfinite(value), 254, power)
    power = np.where(np.isinf(value) & saturate, 254, power)
    power = np.where(np.isnan(value), 255, power)
    return np.asarray(power.astype(np.uint8)).view(dtype_of(SMALL[24])).reshape(value.shape)


def _rounded(array: Array, small: Small, *, saturate: bool) -> Array:
    values = _values(small)
    half = 1 << (small.bits - 1)
    positive = values[:half]
    numbers = np.flatnonzero(np.isfinite(positive))
    known = positive[numbers]
    wide = array.astype(np.float64)
    size = np.abs(wide)
    # The next number of the type that would come after the largest tells where rounding leaves the range.
    step = known[-1] - known[-2]
    above = np.searchsorted(known, size)
    low = np.clip(above - 1, 0, len(known) - 1)
    high = np.clip(above, 0, len(known) - 1)
    down, up = size - known[low], known[high] - size
    takes_up = (up < down) | ((up == down) & (numbers[high] % 2 == 0))
    codes = np.where(takes_up, numbers[high], numbers[low])
    beyond = size > known[-1] + step / 2 if numbers[-1] % 2 == 0 else size >= known[-1] + step / 2
    if small.special == "none" or saturate:
        beyond_code = numbers[-1]
        if small.special == "ieee" and not saturate:
            beyond_code = numbers[-1] + 1
        codes = np.where(size > known[-1], beyond_code, codes)
    elif small.special == "ieee":
        codes = np.where(beyond, numbers[-1] + 1, np.where(size > known[-1], numbers[-1], codes))
    else:
        codes = np.where(beyond, half - 1 if small.special == "fn" else half, codes)
    negative = np.signbit(wide)
    if small.special == "fnuz":
        codes = np.where(negative & (codes != 0) & (codes != half), codes + half, codes)
        codes = np.where(np.isnan(wide), half, codes)
    else:
        codes = np.where(negative, codes + half, codes)
        # Without a pattern for it, NaN becomes minus zero, as ml_dtypes has it.
        codes = np.where(np.isnan(wide), half if small.special == "none" else half - 1, codes)
    return np.asarray(codes.astype(np.uint8)).view(dtype_of(small)).reshape(array.shape)


def cast(array: Array, kind: int, *, saturate: bool = True, towards: str = "nearest") -> Array:
    """Return an array of another element type, by its number, as Cast says."""
    if kind == 8:
        source = decode(array)
        texts = source.astype(np.float32) if small_of(array.dtype) and source.dtype.kind == "f" else source
        return np.array([_text(one) for one in texts.reshape(-1)], object).reshape(array.shape)
    if array.dtype.kind in "OUS":
        target = numpy_dtype(kind)
        if target.kind == "f" or kind in SMALL:
            numbers = np.array([float(one) for one in array.reshape(-1)], np.float64).reshape(array.shape)
        else:
            numbers = np.array([int(float(one)) if "." in one else int(one) for one in array.reshape(-1)]).reshape(
                array.shape
            )
        return cast(numbers, kind)
    source = decode(array)
    if kind in SMALL:
        return encode(source, SMALL[kind], saturate=saturate, towards=towards)
    with np.errstate(all="ignore"):
        return source.astype(PLAIN[kind])


def _text(value: Any) -> str:
    if isinstance(value, (bytes, str)):
        return value if isinstance(value, str) else value.decode()
    if isinstance(value, np.floating):
        if np.isnan(value):
            return "NaN"
        if np.isinf(value):
            return "INF" if value > 0 else "-INF"
        return str(value)
    return str(value)


def constant(one: Constant, folder: str = "") -> Array:
    """Return a constant of a file as an array over its bytes.

    Args:
        one: The constant.
        folder: Where the files of external ones lie.

    Raises:
        ValueError: It has another number of elements than its shape says, or its file is not there.
    """
    dtype = numpy_dtype(one.kind)
    count = int(np.prod(one.shape, dtype=np.int64))
    raw = external_bytes(one, folder) if one.external else one.raw
    small = SMALL.get(one.kind)
    if one.kind == 8:
        array = np.array([str(text, "utf-8", "replace") for text in one.values if isinstance(text, bytes)], object)
    elif raw is not None:
        if small is not None and small.bits < 8:
            array = _unpacked(np.frombuffer(raw, np.uint8), small, count)
        else:
            array = np.frombuffer(raw, dtype)
    elif small is not None and small.bits < 8:
        array = _unpacked(np.array(one.values, np.int64).astype(np.uint8), small, count)
    elif small is not None or one.kind == 10:
        bits = np.array(one.values, np.int64).astype(np.uint8 if small and small.bits == 8 else np.uint16)
        array = bits.view(dtype)
    elif one.kind in (14, 15):
        pairs = np.array(one.values, "f4" if one.kind == 14 else "f8")
        array = pairs.view(dtype)
    elif one.kind == 13:
        array = np.array([int(value) & (2**64 - 1) for value in one.values], np.uint64)
    else:
        array = np.array(one.values, dtype)
    if array.size != count:
        raise ValueError(f"`{one.name}` has {array.size} elements, expected {count} for the shape {list(one.shape)}")
    return array.reshape(one.shape)


def _unpacked(data: Array, small: Small, count: int) -> Array:
    each = 8 // small.bits
    shifts = np.arange(each, dtype=np.uint8) * small.bits
    parts = (data[:, None] >> shifts) & ((1 << small.bits) - 1)
    return parts.astype(np.uint8).reshape(-1)[:count].view(dtype_of(small))


def external_bytes(one: Constant, folder: str) -> bytes:
    """Read the bytes of a constant in a file beside the model's.

    Raises:
        ValueError: The file lies outside the folder, is not there, or is too short.
    """
    location = one.external.get("location", "")
    path = os.path.normpath(os.path.join(folder, location))
    if not folder or os.path.isabs(location) or os.path.relpath(path, folder).startswith(".."):
        raise ValueError(f"`{one.name}` lies in `{location}`, which is not beside the model")
    offset = int(one.external.get("offset", "0"))
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(int(one.external["length"]) if "length" in one.external else -1)
    except OSError as error:
        raise ValueError(f"`{one.name}` lies in `{location}`, which cannot be read: {error}") from error
    return data


def dense(one: SparseConstant, folder: str = "") -> Array:
    """Return a sparse constant as a whole array.

    Raises:
        ValueError: A place is outside it.
    """
    values, places = constant(one.values, folder), constant(one.places, folder)
    whole = np.zeros(one.shape, values.dtype)
    if places.ndim == 2:
        whole[tuple(places.T)] = values
    else:
        whole.reshape(-1)[places] = values
    return whole
