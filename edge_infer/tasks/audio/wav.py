"""Read WAV files: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64.

The format is that of "Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991), with
WAVE_FORMAT_EXTENSIBLE (Microsoft, 2001), which Python's `wave` reads from 3.12 on only.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from typing import Any

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_HINT = "give a WAV file of 8 to 32-bit PCM or of floats"


def read_wav(data: bytes) -> Sound:
    """Return the samples of a WAV file, its channels mixed to one.

    Raises:
        InputError: It is damaged, holds no sound, or is of a kind that is not read here.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InputError("the sound is not a WAV file", hint=_HINT)
    at, kind = 12, (0, 0, 0, 0)
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            kind = _format(body)
        elif name == b"data":
            return _sound(body, *kind)
        at += 8 + size + size % 2
    raise InputError("the WAV file has no samples", hint=_HINT)


def _format(body: bytes) -> tuple[int, int, int, int]:
    """Return the encoding, channels, rate and bits of a sample."""
    if len(body) < 16:
        raise InputError("the WAV file's format is cut short", hint=_HINT)
    encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if encoding == _EXTENSIBLE and len(body) >= 26:
        encoding = int.from_bytes(body[24:26], "little")
    return encoding, channels, rate, bits


def _sound(body: bytes, encoding: int, channels: int, rate: int, bits: int) -> Sound:
    if not 1 <= channels <= 64 or not 1 <= rate <= 768_000:
        raise InputError(
            f"the WAV file has {channels} channels of {rate} samples per second, expected 1 to 64 of 1 to 768000",
            hint=_HINT,
        )
    width = bits // 8
    if (encoding, bits) not in {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)}:
        raise InputError(f"the WAV file has encoding {encoding} with {bits} bits, which is not read here", hint=_HINT)
    body = body[: len(body) // (width * channels) * width * channels]
    values, full = _values(body, encoding, bits)
    return Sound(mixed(values, channels, 1 / full), rate)


def _values(body: bytes, encoding: int, bits: int) -> tuple[array[float] | array[int], float]:
    """Return the samples of all channels, and what full scale is."""
    if encoding == _FLOAT:
        return _native(array("f" if bits == 32 else "d", body)), 1.0
    if bits == 8:
        return array("h", [level - 128 for level in body]), 128.0
    if bits == 24:  # each in the upper bytes of 32 bits
        wide = bytearray(len(body) // 3 * 4)
        for byte in range(3):
            wide[byte + 1 :: 4] = body[byte::3]
        return _native(array("i", bytes(wide))), 2.0**31
    return _native(array("h" if bits == 16 else "i", body)), 2.0 ** (bits - 1)


def _native(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def mixed(values: array[float] | array[int], channels: int, scale: float) -> array[float]:
    """Return the mean of the channels, each sample times `scale`: float64 sums, rounded once to float32.

    Args:
        values: The samples, those of one moment side by side.
        channels: How many there are of each moment.
        scale: 1 divided by full scale.
    """
    if channels == 1 and scale == 1:
        return array("f", values)
    if has_numpy():
        import numpy as np

        moments = np.asarray(values).reshape(-1, channels)
        sums = np.zeros(len(moments))
        for channel in range(channels):  # in this order: the same bits as below
            sums += moments[:, channel]
        return array("f", (sums / channels * scale).astype(np.float32).tobytes())
    if channels == 1:
        return array("f", (value * scale for value in values))
    planes = [values[channel::channels] for channel in range(channels)]
    made = array("f")
    for moment in zip(*planes, strict=True):
        total = 0.0  # `sum` compensates its errors since Python 3.12, and JavaScript has no such thing
        for value in moment:
            total += value
        made.append(total / channels * scale)
    return made
