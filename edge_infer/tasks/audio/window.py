"""Windows: the weights of a frame's samples before its Fourier transform."""

from __future__ import annotations

import math


def window_of(name: str, length: int) -> list[float]:
    """Return the weights of a frame.

    Args:
        name: `hann` (periodic, as librosa's and TensorFlow's), or one that is symmetric: `hann_symmetric`, `hamming`
            and `povey` (Hann's to the power of .85) of Kaldi.
        length: The frame's samples; 2 at least.
    """
    turns = length if name == "hann" else length - 1
    cosines = [math.cos(2 * math.pi * i / turns) for i in range(length)]
    if name == "hamming":
        return [0.54 - 0.46 * cosine for cosine in cosines]
    hann = [0.5 - 0.5 * cosine for cosine in cosines]
    return [math.pow(weight, 0.85) for weight in hann] if name == "povey" else hann
