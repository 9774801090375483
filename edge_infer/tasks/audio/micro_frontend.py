"""The features of microcontrollers: TensorFlow Lite Micro's audio frontend, in its own integer arithmetic.

Each frame goes through a window, a Fourier transform of 16-bit integers, a filterbank of mel bands, the removal of
steady noise, a gain for each band (PCAN) and a logarithm. Every number is an integer, so that all hosts agree. The
tables are made of correctly rounded cosines and logarithms; a C library that rounds them otherwise (glibc 2.36) moves a
weight by 1 in 4,096, and one feature in some 30,000 by one.

Sources: `tensorflow/lite/experimental/microfrontend/lib` (window, filterbank, noise_reduction, pcan_gain_control,
log_scale) and kissfft's `kiss_fft.c` and `kiss_fftr.c` with FIXED_POINT=16.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tasks.values import float32

if TYPE_CHECKING:
    from collections.abc import Sequence

_WINDOW_BITS, _FILTER_BITS, _NOISE_BITS = 12, 12, 14
_SNR_BITS, _PCAN_BITS = 12, 6
_LOG_SEGMENTS, _LOG_COEFFICIENT = 128, 45_426
_LOG_TABLE = [round(65_536 * (math.log2(1 + i / _LOG_SEGMENTS) - i / _LOG_SEGMENTS)) for i in range(_LOG_SEGMENTS + 1)]
_MOST = 0xFFFFFFFF


class Settings(NamedTuple):
    """The settings of a frontend; the defaults are those of its makers.

    Attributes:
        rate: Samples a second.
        window: The samples of a frame.
        step: The samples from one frame to the next.
        channels: The mel bands.
        low_hz: The lower end of the first band.
        high_hz: The upper end of the last.
        is_gained: Whether each band gets a gain of its own.
    """

    rate: int = 16_000
    window: int = 480
    step: int = 160
    channels: int = 40
    low_hz: float = 125.0
    high_hz: float = 7500.0
    is_gained: bool = True


class Tables(NamedTuple):
    """What a frontend looks up: the same arithmetic in another language needs these numbers.

    Attributes:
        window: The weight of each sample of a frame, of 4,096.
        turns: Real and imaginary parts of the complex transform's unit circle, in 15 bits.
        half_turns: Those of the step that makes a transform of real numbers of it.
        radices: The radix of each level of the transform, the outermost first.
        bands: For each band, and one before, the first bin and how many bins.
        rises: The weight of each bin in the band that it rises in, one band after the other.
        falls: Its weight in the band before.
        gains: Parabolas over the octaves of the noise; empty where bands get no gain.
        logarithm: What a line from power to power of two lacks of the logarithm.
        correction: The bits by which the transform's size moves a signal.
    """

    window: list[int]
    turns: list[tuple[int, int]]
    half_turns: list[tuple[int, int]]
    radices: list[int]
    bands: list[tuple[int, int]]
    rises: list[int]
    falls: list[int]
    gains: list[int]
    logarithm: list[int]
    correction: int


_SMOOTHING_BITS, _EVEN, _ODD, _LEAST_SIGNAL = 10, int(0.025 * 2**14), int(0.06 * 2**14), int(0.05 * 2**14)
_STRENGTH, _OFFSET, _GAIN_BITS, _LOG_SHIFT = 0.95, 80.0, 21, 6


class MicroFrontend:
    """Makes features of sounds; it remembers the noise of what it has heard.

    Args:
        settings: What it is made for.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._size = 1 << max(settings.window - 1, 1).bit_length()
        turn = float32(math.pi * 2 / settings.window)
        self._window = [_weight(float32(turn * (i + 0.5))) for i in range(settings.window)]
        self._fourier = _Fourier(self._size)
        self._filters = _Filters(settings, self._size)
        self._correction = self._size.bit_length() - 1 - _FILTER_BITS // 2
        self._gains = _gains(_SMOOTHING_BITS - self._correction) if settings.is_gained else []
        self._noise = [0] * settings.channels

    def features(self, samples: Sequence[int]) -> list[list[int]]:
        """Return the features of each whole frame, from 0 to 65,535.

        Args:
            samples: 16-bit samples.
        """
        size, step = self._settings.window, self._settings.step
        return [self._frame(samples[at : at + size]) for at in range(0, len(samples) - size + 1, step)]

    def tables(self) -> Tables:
        """Return the numbers that the arithmetic looks up."""
        fourier, bands = self._fourier, self._filters.triangles
        return Tables(
            self._window,
            fourier.turns,
            fourier.half_turns,
            [radix for radix, _ in fourier.factors],
            [(start, len(rises)) for start, rises, _ in bands],
            [weight for _, rises, _ in bands for weight in rises],
            [weight for _, _, falls in bands for weight in falls],
            self._gains,
            _LOG_TABLE,
            self._correction,
        )

    def _frame(self, samples: Sequence[int]) -> list[int]:
        values = [(sample * weight) >> _WINDOW_BITS for sample, weight in zip(samples, self._window, strict=True)]
        # The C counts in 16 bits, where -32,768 has no positive number.
        shift = 15 - max((abs(value) for value in values if value != -32_768), default=0).bit_length()
        spectrum = self._fourier.transform([_wrapped(value << shift) for value in values])
        bands = [_root(band) >> shift for band in self._filters.bands(spectrum)]
        return [self._finished(i, band) for i, band in enumerate(bands)]

    def _finished(self, band: int, signal: int) -> int:
        smoothing = _ODD if band & 1 else _EVEN
        scaled = (signal << _SMOOTHING_BITS) & _MOST
        noise = (scaled * smoothing + self._noise[band] * ((1 << _NOISE_BITS) - smoothing)) >> _NOISE_BITS
        self._noise[band] = noise
        left = (scaled - min(noise, scaled)) >> _SMOOTHING_BITS
        signal = max(left, (signal * _LEAST_SIGNAL) >> _NOISE_BITS)
        if self._gains:
            snr = (signal * _gain(noise, self._gains)) >> (_GAIN_BITS - self._correction - _SNR_BITS)
            signal = _shrunk(snr)
        signal = (signal << self._correction if self._correction >= 0 else signal >> -self._correction) & _MOST
        return min(_log(signal), 0xFFFF) if signal > 1 else 0


class _Fourier:
    """A transform of `size` real integers by one of half as many complex ones, as kissfft computes it in 16 bits."""

    def __init__(self, size: int) -> None:
        self._half = size // 2
        self.turns = [_unit(-2 * math.pi * i / self._half) for i in range(self._half)]
        self.half_turns = [_unit(-math.pi * ((i + 1) / self._half + 0.5)) for i in range(self._half // 2)]
        self.factors = _factors(self._half)

    def transform(self, values: Sequence[int]) -> list[tuple[int, int]]:
        """Return the spectrum: half of the size, and one more."""
        half = self._half
        padded = [*values, *[0] * (2 * half - len(values))]
        real, imaginary = padded[0::2], padded[1::2]
        out_real, out_imaginary = [0] * half, [0] * half
        self._part(out_real, out_imaginary, 0, real, imaginary, 0, 1, 0)
        spectrum = [(0, 0)] * (half + 1)
        first, second = _divided(out_real[0], 2), _divided(out_imaginary[0], 2)
        spectrum[0], spectrum[half] = (_wrapped(first + second), 0), (_wrapped(first - second), 0)
        for k in range(1, half // 2 + 1):
            a, b = _divided(out_real[k], 2), _divided(out_imaginary[k], 2)
            c, d = _divided(out_real[half - k], 2), _divided(-out_imaginary[half - k], 2)
            sum_real, sum_imaginary = a + c, b + d
            turned_real, turned_imaginary = _product(a - c, b - d, *self.half_turns[k - 1])
            spectrum[k] = (sum_real + turned_real) >> 1, (sum_imaginary + turned_imaginary) >> 1
            spectrum[half - k] = (sum_real - turned_real) >> 1, (turned_imaginary - sum_imaginary) >> 1
        return spectrum

    def _part(
        self,
        real: list[int],
        imaginary: list[int],
        at: int,
        given_real: Sequence[int],
        given_imaginary: Sequence[int],
        start: int,
        stride: int,
        level: int,
    ) -> None:
        radix, length = self.factors[level]
        for i in range(radix):
            place, source = at + i * length, start + i * stride
            if length == 1:
                real[place], imaginary[place] = given_real[source], given_imaginary[source]
            else:
                self._part(real, imaginary, place, given_real, given_imaginary, source, stride * radix, level + 1)
        (self._four if radix == 4 else self._two)(real, imaginary, at, length, stride)

    def _four(self, real: list[int], imaginary: list[int], at: int, length: int, stride: int) -> None:
        twiddles = self.turns
        for k in range(at, at + length):
            turn = (k - at) * stride
            places = k, k + length, k + 2 * length, k + 3 * length
            (a, b, c, d), (e, f, g, h) = ([_divided(side[place], 4) for place in places] for side in (real, imaginary))
            b, f = _product(b, f, *twiddles[turn])
            c, g = _product(c, g, *twiddles[2 * turn])
            d, h = _product(d, h, *twiddles[3 * turn])
            over, over_i, under, under_i = a - c, e - g, a + c, e + g
            both, both_i, apart, apart_i = b + d, f + h, b - d, f - h
            real[k], imaginary[k] = _wrapped(under + both), _wrapped(under_i + both_i)
            real[places[2]], imaginary[places[2]] = _wrapped(under - both), _wrapped(under_i - both_i)
            real[places[1]], imaginary[places[1]] = _wrapped(over + apart_i), _wrapped(over_i - apart)
            real[places[3]], imaginary[places[3]] = _wrapped(over - apart_i), _wrapped(over_i + apart)

    def _two(self, real: list[int], imaginary: list[int], at: int, length: int, stride: int) -> None:
        for k in range(at, at + length):
            other = k + length
            a, b = _divided(real[k], 2), _divided(imaginary[k], 2)
            c, d = _product(_divided(real[other], 2), _divided(imaginary[other], 2), *self.turns[(k - at) * stride])
            real[other], imaginary[other] = _wrapped(a - c), _wrapped(b - d)
            real[k], imaginary[k] = _wrapped(a + c), _wrapped(b + d)


class _Filters:
    """Triangles over the mel scale; each bin counts for the band that it rises in, and for the one before."""

    def __init__(self, settings: Settings, size: int) -> None:
        count = settings.channels + 1
        width = float32(0.5 * settings.rate / float32(size // 2))
        low = _mel(settings.low_hz)
        spacing = float32(float32(_mel(settings.high_hz) - low) / count)
        centers = [float32(low + float32(spacing * (i + 1))) for i in range(count)]
        place = int(1.5 + settings.low_hz / width)
        self.triangles: list[tuple[int, list[int], list[int]]] = []
        for band, center in enumerate(centers):
            start, weights, others = place, [], []
            before = centers[band - 1] if band else low
            while place <= size // 2 and _mel(float32(place * width)) <= center:
                share = float32(float32(center - _mel(float32(place * width))) / float32(center - before))
                weights.append(math.floor(float32(share * (1 << _FILTER_BITS)) + 0.5))
                others.append(math.floor((1.0 - share) * (1 << _FILTER_BITS) + 0.5))
                place += 1
            self.triangles.append((start, weights, others))

    def bands(self, spectrum: Sequence[tuple[int, int]]) -> list[int]:
        """Return the energy of each band."""
        found, carried = [], 0
        for start, weights, others in self.triangles:
            energies = [
                real * real + imaginary * imaginary for real, imaginary in spectrum[start : start + len(weights)]
            ]
            found.append(carried + sum(weight * energy for weight, energy in zip(weights, energies, strict=True)))
            carried = sum(weight * energy for weight, energy in zip(others, energies, strict=True))
        return found[1:]


def _weight(angle: float) -> int:
    """Return a weight of Hann's window; cosines are float32 there."""
    return math.floor(float32(0.5 - float32(0.5 * float32(math.cos(angle)))) * (1 << _WINDOW_BITS) + 0.5)


def _factors(size: int) -> list[tuple[int, int]]:
    """Return the radices of a power of two, each with the length that is left."""
    found = []
    while size > 1:
        radix = 4 if size % 4 == 0 else 2
        size //= radix
        found.append((radix, size))
    return found


def _unit(angle: float) -> tuple[int, int]:
    return math.floor(0.5 + 32_767 * math.cos(angle)), math.floor(0.5 + 32_767 * math.sin(angle))


def _rounded(value: int) -> int:
    return _wrapped((value + (1 << 14)) >> 15)


def _wrapped(value: int) -> int:
    """Return what 16 bits hold of a number."""
    return ((value + 0x8000) & 0xFFFF) - 0x8000


def _divided(value: int, by: int) -> int:
    return _rounded(value * (32_767 // by))


def _product(a: int, b: int, c: int, d: int) -> tuple[int, int]:
    return _rounded(a * c - b * d), _rounded(a * d + b * c)


def _mel(hertz: float) -> float:
    return float32(1127.0 * float32(math.log1p(float32(hertz / 700.0))))


def _root(number: int) -> int:
    """Return a square root, rounded to the nearest."""
    root = math.isqrt(number)
    most = _MOST if number >> 32 else 0xFFFF
    return root + 1 if number - root * root > root and root != most else root


def _gains(bits: int) -> list[int]:
    """Return parabolas over the octaves of the noise, three numbers and a gap for each."""

    def gain(noise: int) -> int:
        at = float32(noise / (1 << bits))
        found = float32((1 << _GAIN_BITS) * float32(float32(at + _OFFSET) ** -float32(_STRENGTH)))
        return 0x7FFF if found > 0x7FFF else int(found + 0.5)

    table = [gain(0), gain(1)]
    for interval in range(2, 33):
        low = 1 << (interval - 1)
        y0, y1, y2 = gain(low), gain(low + (low >> 1)), gain(_MOST if interval == 32 else 2 * low)
        first = 4 * (y1 - y0) - (y2 - y0)
        table += [y0, first, y2 - y0 - first, 0]
    return table


def _gain(noise: int, table: Sequence[int]) -> int:
    if noise <= 1:
        return table[noise]
    interval = noise.bit_length()
    at = 4 * interval - 6
    part = (noise << (11 - interval) if interval < 11 else noise >> (interval - 11)) & 0x3FF
    result = ((table[at + 2] * part) >> 5) + (table[at + 1] << 5)
    return _wrapped(((result * part + (1 << 14)) >> 15) + table[at])


def _shrunk(snr: int) -> int:
    snr &= _MOST
    if snr < 2 << _SNR_BITS:
        return (snr * snr) >> (2 + 2 * _SNR_BITS - _PCAN_BITS)
    return (snr >> (_SNR_BITS - _PCAN_BITS)) - (1 << _PCAN_BITS)


def _log(value: int) -> int:
    whole = value.bit_length() - 1
    part = value - (1 << whole)
    part = part << (16 - whole) if whole < 16 else part >> (whole - 16)
    segment = part >> 9
    low, high = _LOG_TABLE[segment], _LOG_TABLE[segment + 1]
    fraction = part + low + (((high - low) * (part - 512 * segment)) >> 16)
    natural = (_LOG_COEFFICIENT * ((whole << 16) + fraction) + (1 << 15)) >> 16
    return ((natural << _LOG_SHIFT) + (1 << 15)) >> 16
