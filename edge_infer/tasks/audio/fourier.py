"""The discrete Fourier transform of real numbers, of any length, without numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RealFourier:
    """Transforms frames of one length: mixed radix 2, 3 and 5 (Cooley and Tukey, 1965), other factors directly.

    Args:
        length: Samples of a frame.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._cos = [math.cos(2 * math.pi * k / length) for k in range(length)]
        self._sin = [-math.sin(2 * math.pi * k / length) for k in range(length)]

    def __call__(self, samples: Sequence[float]) -> list[tuple[float, float]]:
        """Return the real and imaginary part of each frequency from 0 to half the rate."""
        real, imaginary = self._transform(list(samples), [0.0] * self._length, 1)
        return list(zip(real, imaginary, strict=True))[: self._length // 2 + 1]

    def _transform(self, real: list[float], imaginary: list[float], stride: int) -> tuple[list[float], list[float]]:
        length = len(real)
        if length == 1:
            return real, imaginary
        radix = next((factor for factor in (2, 3, 5) if length % factor == 0), length)
        part = length // radix
        parts = [self._transform(real[q::radix], imaginary[q::radix], stride * radix) for q in range(radix)]
        out_real, out_imaginary = [0.0] * length, [0.0] * length
        for k in range(length):
            total_real = total_imaginary = 0.0
            for q in range(radix):
                turn = q * k * stride % self._length
                re, im = parts[q][0][k % part], parts[q][1][k % part]
                cosine, sine = self._cos[turn], self._sin[turn]
                total_real += re * cosine - im * sine
                total_imaginary += re * sine + im * cosine
            out_real[k], out_imaginary[k] = total_real, total_imaginary
        return out_real, out_imaginary
