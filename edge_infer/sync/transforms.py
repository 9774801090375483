"""Turn the bytes of a tensor into bytes that compress better, and back, exactly.

Every transform keeps the length. `PLANES` groups the first bytes of all elements, then the second, ...: the exponents
of floats are alike, their last digits are not. `FLOATS` and `INTEGERS` first subtract the old version of the tensor,
element by element, as unsigned integers that wrap around, and fold the sign into the last bit; `FLOATS` maps the bits
of a float to integers in the order of the floats, so that a small step is a small number. `RESCALED` is for int8 codes
whose scale changed: it subtracts the old code times the ratio of the scales, a fixed-point number with 16 fractional
bits, rounded and clipped in integers, so that every decoder gets the same. Bytes are little-endian.

Decoding needs no numpy, and is some hundred times quicker with it.
"""

from __future__ import annotations

from typing import Any

from edge_infer.errors import DeltaError

RAW, PLANES, FLOATS, INTEGERS, RESCALED = 1, 2, 3, 4, 5
#: The widths in bytes of the elements that a transform takes.
WIDTHS = (1, 2, 4, 8)
#: The ratios of scales that `RESCALED` takes, in units of 2**-16: from 1/256 to 256.
RATIOS = range(2**8, 2**24 + 1)


def encode(transform: int, width: int, new: bytes, old: bytes = b"") -> bytes:
    """Transform the bytes of a tensor; needs numpy.

    Args:
        transform: `RAW`, `PLANES`, `FLOATS`, `INTEGERS` or `RESCALED`.
        width: The bytes of one element; of `FLOATS` 2, 4 or 8; of `RESCALED` the ratio of the scales instead.
        new: The bytes; a multiple of the width.
        old: For the last three the same number of bytes of the old version.
    """
    _check(transform, width, new, old)
    if transform == RAW:
        return new
    import numpy as np

    if transform == RESCALED:
        return bytes(_folded(np.frombuffer(new, "u1") - _predicted(old, width)).tobytes())
    values = np.frombuffer(new, f"<u{width}")
    if transform != PLANES:
        before = np.frombuffer(old, f"<u{width}")
        if transform == FLOATS:
            values, before = _ordered(values), _ordered(before)
        values = _folded(values - before)
    return _planes(values.tobytes(), width)


def decode(transform: int, width: int, data: bytes, old: bytes = b"") -> bytes:
    """Undo `encode`.

    Raises:
        DeltaError: The transform or width is unknown, or the lengths do not fit.
    """
    _check(transform, width, data, old)
    if transform == RAW:
        return data
    if transform == RESCALED:
        return _decode_rescaled(width, data, old)
    data = _joined(data, width)
    if transform == PLANES:
        return data
    try:
        import numpy as np
    except ImportError:
        return _decode_plainly(transform, width, data, old)
    before = np.frombuffer(old, f"<u{width}")
    values = _unfolded(np.frombuffer(data, f"<u{width}"))
    if transform == FLOATS:
        return bytes(_unordered(values + _ordered(before)).tobytes())
    return bytes((values + before).tobytes())


def _check(transform: int, width: int, data: bytes, old: bytes) -> None:
    if transform == RESCALED:
        width = 1 if width in RATIOS else 0
    if transform not in (RAW, PLANES, FLOATS, INTEGERS, RESCALED) or width not in WIDTHS:
        raise DeltaError(f"Unknown transform {transform} of width {width}", hint="pip install --upgrade edge-infer")
    if transform != RAW and len(data) % width:
        raise DeltaError(f"{len(data)} bytes are no elements of {width} bytes")
    if transform in (FLOATS, INTEGERS, RESCALED) and len(old) != len(data):
        raise DeltaError(f"A difference of {len(data)} bytes against {len(old)} bytes")


def _planes(data: bytes, width: int) -> bytes:
    return b"".join(data[i::width] for i in range(width)) if width > 1 else data


def _joined(data: bytes, width: int) -> bytes:
    if width == 1:
        return data
    count = len(data) // width
    joined = bytearray(len(data))
    for i in range(width):
        joined[i::width] = data[i * count : (i + 1) * count]
    return bytes(joined)


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


def _predicted(old: bytes, ratio: int) -> Any:
    """Return the old codes at the new scale, as the unsigned bytes of an int8."""
    import numpy as np

    codes = np.frombuffer(old, "i1").astype(np.int32) * np.int32(ratio) + np.int32(1 << 15)
    return np.clip(codes >> 16, -128, 127).astype(np.int8).view(np.uint8)


def _decode_rescaled(ratio: int, data: bytes, old: bytes) -> bytes:
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        return bytes((_unfolded(np.frombuffer(data, "u1")) + _predicted(old, ratio)).tobytes())
    # One entry for each of the 256 codes that an old byte can be.
    codes = [code - 256 if code > 127 else code for code in range(256)]
    table = [min(max((code * ratio + (1 << 15)) >> 16, -128), 127) for code in codes]
    return bytes(((one >> 1) ^ -(one & 1)) + table[before] & 255 for one, before in zip(data, old, strict=True))


def _decode_plainly(transform: int, width: int, data: bytes, old: bytes) -> bytes:
    bits = width * 8
    mask, top = (1 << bits) - 1, 1 << (bits - 1)

    def turned(value: int) -> int:
        value ^= top
        return value if value & top else value ^ (mask ^ top)

    def unturned(value: int) -> int:
        value ^= top
        return value ^ (mask ^ top) if value & top else value

    result = bytearray(len(data))
    for i in range(0, len(data), width):
        folded = int.from_bytes(data[i : i + width], "little")
        difference = (folded >> 1) ^ (mask if folded & 1 else 0)
        before = int.from_bytes(old[i : i + width], "little")
        before = turned(before) if transform == FLOATS else before
        value = (difference + before) & mask
        value = unturned(value) if transform == FLOATS else value
        result[i : i + width] = value.to_bytes(width, "little")
    return bytes(result)
