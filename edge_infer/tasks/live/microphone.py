"""Live sound: from a microphone, or as raw samples of a pipe."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, BinaryIO

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTALL = "pip install sounddevice, or pipe raw samples: arecord -r 16000 -f S16_LE -t raw | edge-infer run BUNDLE -"


def blocks(rate: int, samples: int, device: int | str | None = None) -> Iterator[array[float]]:
    """Give blocks of a microphone's samples until it ends.

    Args:
        rate: Samples per second.
        samples: Samples of a block.
        device: The microphone as the package sounddevice names it; None for the system's own choice.

    Raises:
        UnsupportedError: The package sounddevice is not installed, or finds no PortAudio.
        InputError: There is no such microphone, or it does not give this rate.
    """
    if installed.origin_of("sounddevice") is None:
        raise UnsupportedError("To read a microphone takes the package sounddevice", hint=_INSTALL)
    try:
        import sounddevice
    except OSError as error:  # PortAudio is missing
        raise UnsupportedError(f"The package sounddevice does not work here: {error}", hint=_INSTALL) from error
    try:
        stream = sounddevice.RawInputStream(rate, samples, device, channels=1, dtype="float32")
    except (ValueError, sounddevice.PortAudioError) as error:
        raise InputError(
            f"the microphone cannot be read at {rate} samples per second: {error}",
            hint="python -m sounddevice lists them",
        ) from error
    with stream:
        while True:
            data, _ = stream.read(samples)
            yield array("f", bytes(data))


def raw_blocks(file: BinaryIO, samples: int) -> Iterator[array[float]]:
    """Give blocks of the samples of a pipe: 16-bit integers, little-endian, one channel, at the model's own rate.

    Args:
        file: What is read, to its end; the last block is filled up with silence.
        samples: Samples of a block.
    """
    while data := file.read(2 * samples):
        whole = array("h", data[: len(data) // 2 * 2].ljust(2 * samples, b"\0"))
        if sys.byteorder == "big":
            whole.byteswap()
        yield array("f", [value / 32768 for value in whole])
