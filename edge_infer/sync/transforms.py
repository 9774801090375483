"""Turn the bytes of a tensor into bytes that compress better, and back, exactly.

Every transform keeps the length. `PLANES` groups the first bytes of all elements, then the second, ...: the exponents
of floats are alike, their last digits are not. `FLOATS` and `INTEGERS` first subtract the old version of the tensor,
element by element, as unsigned integers that wrap around, and fold the sign into the last bit; `FLOATS` maps the bits
of a float to integers in the order of the floats, so that a small step is a small number. `GROUPED` does the same with
the elements sorted by the exponent of the old ones, which both sides know: a training step is about as large for all
weights, so its number of last places depends on the exponent. `RESCALED` is for int8 codes whose scale changed: it
subtracts the old code times the ratio of the scales, a fixed-point number with 16 fractional bits, rounded and clipped
in integers, so that every decoder gets the same; what rounding cut off tells on which side the new code rather lies,
and differences to that side get the smaller numbers. Bytes are little-endian.

Decoding needs no numpy, and is some hundred times quicker with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import DeltaError

if TYPE_CHECKING:
    from collections.abc import Iterable

RAW, PLANES, FLOATS, INTEGERS, RESCALED, GROUPED = 1, 2, 3, 4, 5, 6
CODECS = (RAW, PLANES, FLOATS, INTEGERS, RESCALED, GROUPED)
#: Those that take the old version of a tensor.
DIFFERENCES = (FLOATS, INTEGERS, RESCALED, GROUPED)
#: The widths in bytes of the elements that a transform takes.
WIDTHS = (1, 2, 4, 8)
#: The ratios of scales that `RESCALED` takes, in units of 2**-16: from 1/256 to 256.
RATIOS = range(2**8, 2**24 + 1)
# So many bytes and what is made of them on the way stay in a core's cache; of 2**15 to 2**18 the fastest.
_BLOCK_BYTES = 2**17


def encode(transform: int, width: int, new: bytes, old: bytes = b"") -> bytes:
    """Transform the bytes of a tensor; needs numpy.

    Args:
        transform: One of `CODECS`.
        width: The bytes of one element; of floats 2, 4 or 8; of `RESCALED` the ratio of the scales instead.
        new: The bytes; a multiple of the width.
        old: For `DIFFERENCES` the same number of bytes of the old version.
    """
    _check(transform, width, new, old)
    if transform == RAW:
        return new
    import numpy as np

    if transform == RESCALED:
        predicted, turns = (np.frombuffer(one, "u1") for one in _predicted(old, width))
        return bytes(_folded(((np.frombuffer(new, "u1") - predicted) ^ turns) - turns).tobytes())
    values = np.frombuffer(new, f"<u{width}")
    if transform != PLANES:
        before = np.frombuffer(old, f"<u{width}")
        if transform == GROUPED:
            order = _order(before)
            values, before = values[order], before[order]
        if transform != INTEGERS:
            values, before = _ordered(values), _ordered(before)
        values = _folded(values - before)
    return _planes(values.tobytes(), width)


def decode(transform: int, width: int, data: bytes, old: bytes = b"") -> bytes | bytearray:
    """Undo `encode`.

    Raises:
        DeltaError: The transform or width is unknown, or the lengths do not fit.
    """
    _check(transform, width, data, old)
    if transform == RAW or (transform == PLANES and width == 1):
        return data
    turns = b""
    if transform == RESCALED:
        transform, width, (old, turns) = INTEGERS, 1, _predicted(old, width)
    try:
        import numpy as np
    except ImportError:
        return _decode_plainly(transform, width, data, old, turns)
    count, block = len(data) // width, _BLOCK_BYTES // width
    made = bytearray(len(data))
    planes, result = np.frombuffer(data, "u1").reshape(width, count), np.frombuffer(made, f"<u{width}")
    before, turned = np.frombuffer(old, f"<u{width}"), np.frombuffer(turns, "u1")
    joined = np.empty((min(block, count), width), "u1")
    order = _order(before) if transform == GROUPED else None
    for at in range(0, count, block):
        part = slice(at, min(at + block, count))
        here: Any = part if order is None else order[part]
        for i in range(width):
            joined[: part.stop - at, i] = planes[i, part]
        values = joined[: part.stop - at].reshape(-1).view(f"<u{width}")
        if transform != PLANES:
            values = _unfolded(values)
            if turns:
                values = (values ^ turned[part]) - turned[part]
            values = values + before[here] if transform == INTEGERS else _unordered(values + _ordered(before[here]))
        result[here] = values
    return made


def _check(transform: int, width: int, data: bytes, old: bytes) -> None:
    if transform == RESCALED:
        width = 1 if width in RATIOS else 0
    is_float = transform in (FLOATS, GROUPED)
    if transform not in CODECS or width not in WIDTHS or (is_float and width == 1):
        raise DeltaError(f"Unknown transform {transform} of width {width}", hint="pip install --upgrade edge-infer")
    if transform != RAW and len(data) % width:
        raise DeltaError(f"{len(data)} bytes are not a whole number of elements of {width} bytes")
    if transform in DIFFERENCES and len(old) != len(data):
        raise DeltaError(f"A difference of {len(data)} bytes against {len(old)} bytes")


def _planes(data: bytes, width: int) -> bytes:
    return b"".join(data[i::width] for i in range(width)) if width > 1 else data


def _order(before: Any) -> Any:
    """Return the places of the old elements, sorted by the highest byte without its sign; equal ones stay in order."""
    import numpy as np

    width = before.dtype.itemsize
    return np.argsort(before.view("u1")[width - 1 :: width] & 127, kind="stable")


def _ordered(bits: Any) -> Any:
    """Map the bits of floats to unsigned integers of the same order."""
    top = bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))
    return (bits ^ top) ^ (-(bits >> (bits.dtype.itemsize * 8 - 1))).astype(bits.dtype) & ~top


def _unordered(values: Any) -> Any:
    top = values.dtype.type(1 << (values.dtype.itemsize * 8 - 1))
    bits = values ^ top
    return bits ^ (-(bits >> (values.dtype.itemsize * 8 - 1))).astype(bits.dtype) & ~top


def _folded(difference: Any) -> Any:
    """Fold the sign into the last bit: 0, -1, 1, -2 become 0, 1, 2, 3 (protobuf's zigzag)."""
    kind = difference.dtype
    sign = (-(difference >> (kind.itemsize * 8 - 1))).astype(kind)
    return (difference << kind.type(1)) ^ sign


def _unfolded(values: Any) -> Any:
    kind = values.dtype
    return (values >> kind.type(1)) ^ (-(values & kind.type(1))).astype(kind)


def _predicted(old: bytes, ratio: int) -> tuple[bytes, bytes]:
    """Return old int8 codes at the new scale, rounded, and 255 where they were rounded down, else 0."""
    codes = [(code - 256 if code > 127 else code) * ratio + (1 << 15) for code in range(256)]
    rounded = bytes(min(max(code >> 16, -128), 127) & 255 for code in codes)
    return old.translate(rounded), old.translate(bytes(255 if code & 1 << 15 else 0 for code in codes))


def _decode_plainly(transform: int, width: int, data: bytes, old: bytes, turns: bytes) -> bytearray:
    bits, count = width * 8, len(data) // width
    mask, top = (1 << bits) - 1, 1 << (bits - 1)

    def turned(value: int) -> int:
        value ^= top
        return value if value & top else value ^ (mask ^ top)

    def unturned(value: int) -> int:
        value ^= top
        return value ^ (mask ^ top) if value & top else value

    result = bytearray(len(data))
    planes = [data[i * count : (i + 1) * count] for i in range(width)]
    places: Iterable[int] = range(count)
    if transform == GROUPED:
        places = sorted(places, key=lambda i: old[i * width + width - 1] & 127)
    for digits, place in zip(zip(*planes, strict=True), places, strict=True):
        value, at = int.from_bytes(bytes(digits), "little"), place * width
        if transform != PLANES:
            value = (value >> 1) ^ (mask if value & 1 else 0)
            value = -value if turns and turns[place] else value
            before = int.from_bytes(old[at : at + width], "little")
            before = before if transform == INTEGERS else turned(before)
            value = (value + before) & mask
            value = value if transform == INTEGERS else unturned(value)
        result[at : at + width] = value.to_bytes(width, "little")
    return result
