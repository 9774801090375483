"""Operators of signals: Fourier transforms, windows, and mel bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.backends.reference.elements import numpy_dtype

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _complex(x: Array) -> Array:
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def dft(call: Call, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    """Compute DFT."""
    along = (call.get("axis", 1) if call.opset < 20 else -2) if axis is None else int(np.asarray(axis).reshape(()))
    along %= x.ndim
    inverse, half = bool(call.get("inverse", 0)), bool(call.get("onesided", 0))
    count = None if length is None else int(np.asarray(length).reshape(()))
    signal = _complex(x.astype(np.float64))
    if inverse and half:
        result = np.fft.irfft(signal, count or 2 * (x.shape[along] - 1), along)[..., None]
    elif inverse:
        result = _pairs(np.fft.ifft(signal, count, along))
    else:
        found = np.fft.fft(signal, count, along)
        if half:
            found = np.take(found, np.arange(found.shape[along] // 2 + 1), along)
        result = _pairs(found)
    return result.astype(x.dtype)


def stft(call: Call, x: Array, step: Array, window: Array | None = None, length: Array | None = None) -> Array:
    """Compute STFT."""
    hop = int(np.asarray(step).reshape(()))
    signal = _complex(x) if x.ndim == 3 else x
    if length is not None:
        size = int(np.asarray(length).reshape(()))
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    count = 1 + (signal.shape[1] - size) // hop
    frames = np.stack([signal[:, i * hop : i * hop + size] for i in range(count)], 1)
    if window is not None:
        frames = frames * window
    found = np.fft.fft(frames.astype(np.complex128), axis=2)
    if call.get("onesided", 1):
        found = found[:, :, : size // 2 + 1]
    return _pairs(found).astype(x.dtype)


def _window(*weights: float) -> Operator:
    """Make an operator of a sum of cosines with these weights."""

    def run(call: Call, size: Array) -> Array:
        count = int(np.asarray(size).reshape(()))
        turns = 2 * np.pi * np.arange(count) / (count if call.get("periodic", 1) else max(1, count - 1))
        total = sum(weight * np.cos(i * turns) for i, weight in enumerate(weights))
        return np.asarray(total).astype(numpy_dtype(call.get("output_datatype", 1)))

    return run


def mel_weight_matrix(call: Call, bands: Array, length: Array, rate: Array, low: Array, high: Array) -> Array:
    """Compute MelWeightMatrix: triangles between bins of the spectrum."""
    count, size = int(np.asarray(bands).reshape(())), int(np.asarray(length).reshape(()))
    ends = [2595 * np.log10(1 + float(np.asarray(one).reshape(())) / 700) for one in (low, high)]
    mels = np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2) + ends[0]
    hertz = 700 * (10 ** (mels / 2595) - 1)
    bins = ((size + 1) * hertz // float(np.asarray(rate).reshape(()))).astype(int)
    matrix = np.zeros((size // 2 + 1, count))
    for i in range(count):
        left, middle, right = bins[i : i + 3]
        if middle == left:
            matrix[middle, i] = 1
        else:
            matrix[left : middle + 1, i] = np.arange(middle - left + 1) / (middle - left)
        if right > middle:
            matrix[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    return matrix.astype(numpy_dtype(call.get("output_datatype", 1)))


OPERATORS: dict[str, Operator] = {
    "BlackmanWindow": _window(0.42, -0.5, 0.08),
    "DFT": dft,
    "HammingWindow": _window(25 / 46, -21 / 46),
    "HannWindow": _window(0.5, -0.5),
    "MelWeightMatrix": mel_weight_matrix,
    "STFT": stft,
}
