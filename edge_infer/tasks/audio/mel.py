"""Mel bands: triangles over the frequencies of a Fourier transform."""

from __future__ import annotations

import math
from typing import NamedTuple


class Band(NamedTuple):
    """One band: its first frequency's number, and the weights from there."""

    first: int
    weights: list[float]


def mel_filters(
    fft: int,
    mels: int,
    rate: int,
    low_hz: float,
    high_hz: float | None,
    scale: str,
    *,
    area_norm: bool,
    slopes: str = "hz",
) -> list[Band]:
    """Return the bands.

    Args:
        fft: Samples of a frame.
        mels: How many bands.
        rate: Samples per second.
        low_hz: Where the first band begins.
        high_hz: Where the last one ends; None for half the rate.
        scale: `slaney` (linear below 1 kHz, from Slaney's Auditory Toolbox, 1998) or `htk` (the HTK book, 2002).
        area_norm: Whether each band is divided by half its width in Hz.
        slopes: Where the sides of a band are straight: over `hz`, or over `mel`.
    """
    low, high = _to_mel(low_hz, scale), _to_mel(rate / 2 if high_hz is None else high_hz, scale)
    points = [low + (high - low) * i / (mels + 1) for i in range(mels + 2)]
    frequencies = [k * rate / fft for k in range(fft // 2 + 1)]
    if slopes == "mel":
        frequencies = [_to_mel(hz, scale) for hz in frequencies]
    else:
        points = [_to_hz(point, scale) for point in points]
    bands: list[Band] = []
    for start, middle, end in zip(points, points[1:], points[2:], strict=False):
        row = [_weight(hz, start, middle, end) for hz in frequencies]
        if area_norm:
            width = _to_hz(end, scale) - _to_hz(start, scale) if slopes == "mel" else end - start
            row = [weight * (2.0 / width) for weight in row]
        used = [k for k, weight in enumerate(row) if weight]
        bands.append(Band(used[0], row[used[0] : used[-1] + 1]) if used else Band(0, []))
    return bands


def _weight(hz: float, start: float, middle: float, end: float) -> float:
    if not start < middle < end:
        return 0.0
    return max(0.0, min((hz - start) / (middle - start), (end - hz) / (end - middle)))


def _to_mel(hz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + hz / 700.0)
    return 15.0 + math.log(hz / 1000.0) * (27.0 / math.log(6.4)) if hz >= 1000.0 else 3.0 * hz / 200.0


def _to_hz(mel: float, scale: str) -> float:
    if scale == "htk":
        return 700.0 * (math.pow(10.0, mel / 2595.0) - 1.0)
    return 1000.0 * math.exp(math.log(6.4) / 27.0 * (mel - 15.0)) if mel >= 15.0 else 200.0 * mel / 3.0
