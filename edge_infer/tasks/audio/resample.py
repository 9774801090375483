"""`audio.resample`: a sound at the samples per second that the model takes."""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer.tasks.audio.sound import MAX_SAMPLES, Sound
from edge_infer.tasks.parameters import Parameter
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "rate": Parameter("whole", low=1, high=768_000),
    # How many zero crossings of the sinc are on each side, and which part of the band is kept.
    "zeros": Parameter("whole", 16, low=1, high=256),
    "rolloff": Parameter("real", 0.945, low=0.1, high=1),
}
#: The most weights of a filter: 44,100 to 16,000 takes 15,000; rates without a common factor take millions.
MAX_WEIGHTS = 2_000_000

#: So many samples are made at once with numpy.
_BLOCK = 16_384


class Table(NamedTuple):
    """Weights of a polyphase filter.

    Attributes:
        up: How many phases there are.
        down: How many phases one new sample takes.
        half: Half the taps of a phase.
        rows: The weights of each phase, `2 * half` of them, rounded to float32.
    """

    up: int
    down: int
    half: int
    rows: tuple[array[float], ...]


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that resamples by a sinc under a Hann window.

    The weights are rounded to float32 and the sums are float64, tap by tap, so that every language gives the same.
    The algorithm is J. O. Smith's bandlimited interpolation (https://ccrma.stanford.edu/~jos/resample/).
    """
    rate, zeros, rolloff = parameters["rate"], parameters["zeros"], parameters["rolloff"]

    def apply(sound: Sound, item: Item) -> Sound:
        item.rate = rate
        if sound.rate == rate:
            return sound
        if len(sound.samples) * rate > MAX_SAMPLES * sound.rate:
            raise InputError(
                f"a sound of {len(sound.samples)} samples at {sound.rate} per second is too long at {rate} per second",
                hint="cut it into parts",
            )
        return Sound(_resampled(sound.samples, _table(sound.rate, rate, zeros, rolloff)), rate)

    return apply


@lru_cache(maxsize=8)
def _table(old: int, new: int, zeros: int, rolloff: float) -> Table:
    common = math.gcd(old, new)
    up, down = new // common, old // common
    cut = min(1.0, up / down) * rolloff
    half = math.ceil(zeros / cut)
    if up * 2 * half > MAX_WEIGHTS:
        raise InputError(
            f"a sound of {old} samples per second cannot be resampled to {new}: it takes {up * 2 * half} weights",
            hint="record at 8000, 16000, 44100 or 48000 samples per second",
        )
    rows = []
    for phase in range(up):
        shift = phase * down % up / up
        row = array("f")
        for tap in range(1 - half, half + 1):
            x = tap - shift
            window = 0.5 + 0.5 * math.cos(math.pi * x / half) if abs(x) < half else 0.0
            row.append(cut * _sinc(cut * x) * window)
        rows.append(row)
    return Table(up, down, half, tuple(rows))


def _sinc(x: float) -> float:
    return 1.0 if x == 0 else math.sin(x * math.pi) / (x * math.pi)


def _resampled(samples: array[float], table: Table) -> array[float]:
    up, down, half, rows = table
    count = -(-len(samples) * up // down)
    if has_numpy():
        return _by_numpy(samples, table, count)
    padded = [0.0] * (half - 1) + list(samples) + [0.0] * (half + down)
    made = array("f")
    for i in range(count):
        start, value = i * down // up, 0.0
        for sample, weight in zip(padded[start : start + 2 * half], rows[i % up], strict=True):
            value += sample * weight
        made.append(value)
    return made


def _by_numpy(samples: array[float], table: Table, count: int) -> array[float]:
    """Resample some thousand samples at a time, so that they stay in the processor's cache."""
    import numpy as np

    up, down, half, rows = table
    turns = -(-count // up)  # each makes one sample of every phase and takes `down` samples
    left = turns * down + 2 * half - (half - 1) - len(samples)
    around = np.concatenate([np.zeros(half - 1), np.asarray(samples, np.float64), np.zeros(max(left, 0))])
    first, weights = np.arange(up) * down // up, np.array(rows, np.float64)
    made, block = np.empty((turns, up), np.float32), max(1, _BLOCK // up)
    for start in range(0, turns, block):
        end = min(start + block, turns)
        total = np.zeros((end - start, up))
        for tap in range(2 * half):  # a product for each tap, in the order of the loop above: the same bits
            taken = around[start * down + tap : end * down + tap].reshape(-1, down)
            total += taken.take(first, axis=1) * weights[:, tap]
        made[start:end] = total
    return array("f", made.reshape(-1)[:count].tobytes())
