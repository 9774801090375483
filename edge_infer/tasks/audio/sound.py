"""A sound in memory: samples of one channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array

#: The most samples of a sound, read or made: an hour of 48 kHz.
MAX_SAMPLES = 3600 * 48_000


class Sound(NamedTuple):
    """Samples that a step has read or made.

    Attributes:
        samples: float32, -1 to 1 where the recording is not louder than full scale.
        rate: Samples per second.
    """

    samples: array[float]
    rate: int
