"""`audio.log_mel`: a sound to the logarithms of its energy in mel bands, frame by frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.audio.fourier import RealFourier
from edge_infer.tasks.audio.mel import mel_filters
from edge_infer.tasks.audio.window import window_of
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import floats
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.audio.mel import Band
    from edge_infer.tasks.audio.sound import Sound
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "rate": Parameter("whole", 16_000, low=1, high=768_000),
    "fft": Parameter("whole", 400, low=2, high=16_384),
    # The samples of a frame; zeros fill it up to `fft`. None for `fft` samples.
    "frame": Parameter("whole", None, low=2, high=16_384),
    "hop": Parameter("whole", 160, low=1, high=65_536),
    "mels": Parameter("whole", 80, low=1, high=512),
    "low_hz": Parameter("real", 0.0, low=0),
    "high_hz": Parameter("real", None, low=0),
    "scale": Parameter("choice", "slaney", choices=("slaney", "htk")),
    # Whether the sides of a band are straight over Hz, as librosa's, or over mel, as Kaldi's and TensorFlow's.
    "slopes": Parameter("choice", "hz", choices=("hz", "mel")),
    # Whether each band is divided by its width (librosa's `norm="slaney"`).
    "area_norm": Parameter("flag", True),
    "power": Parameter("whole", 2, low=1, high=2),
    "center": Parameter("flag", True),
    "window": Parameter("choice", "hann", choices=("hann", "hann_symmetric", "hamming", "povey")),
    # Of each frame, before the window: its mean is taken away, then `x[i] - preemphasis * x[i - 1]`, as in Kaldi.
    "remove_mean": Parameter("flag", False),
    "preemphasis": Parameter("real", 0.0, low=0, high=1),
    "log": Parameter("choice", "log10", choices=("log10", "ln", "ln_plus_floor")),
    "floor": Parameter("real", 1e-10, low=0),
    # `whisper`: the last frame goes, what is 8 below the highest is raised to that, then (x + 4) / 4.
    "style": Parameter("choice", "plain", choices=("plain", "whisper")),
    "axes": Parameter("choice", "frames_first", choices=("frames_first", "mels_first")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes a tensor [frames, mels], or [mels, frames].

    `hann` is periodic, the other windows are symmetric. All is float64 and rounded once; hosts differ in the last bit
    of cosines and logarithms: within 1e-9 before rounding. Sources: librosa's `feature.melspectrogram`, transformers'
    `audio_utils.spectrogram` and `WhisperFeatureExtractor`, TensorFlow's `signal.linear_to_mel_weight_matrix`, Kaldi's
    `feature-window.cc`.

    Raises:
        ManifestError: A frame is longer than the transform.
    """
    p = parameters
    size = p["frame"] or p["fft"]
    if size > p["fft"]:
        raise ManifestError(
            f"pipeline: `audio.log_mel` has frames of {size} samples and a transform of {p['fft']}",
            hint=f'"fft": {size}',
            field="frame",
        )
    bands = mel_filters(
        p["fft"],
        p["mels"],
        p["rate"],
        p["low_hz"],
        p["high_hz"],
        p["scale"],
        area_norm=p["area_norm"],
        slopes=p["slopes"],
    )
    window = window_of(p["window"], size)
    is_whisper = p["style"] == "whisper"

    def apply(sound: Sound, item: Item) -> Tensor:  # noqa: ARG001
        samples: Sequence[float] = sound.samples
        if p["center"]:
            samples = _reflected(samples, p["fft"] // 2)
        count = (len(samples) - size) // p["hop"] + 1 - int(is_whisper)
        if count < 1:
            raise InputError(
                f"a sound of {len(sound.samples)} samples is too short: a frame takes {size}",
                hint='add silence, or the step {"step": "audio.fit", "samples": N} before this one',
            )
        energies = _by_numpy if has_numpy() else _plain
        rows = [
            [_log(value, p["log"], p["floor"]) for value in row] for row in energies(samples, count, p, window, bands)
        ]
        if is_whisper:
            least = max(map(max, rows)) - 8.0
            rows = [[(max(value, least) + 4.0) / 4.0 for value in row] for row in rows]
        if p["axes"] == "mels_first":
            return floats((row[band] for band in range(p["mels"]) for row in rows), (p["mels"], count))
        return floats((value for row in rows for value in row), (count, p["mels"]))

    return apply


def _reflected(samples: Sequence[float], margin: int) -> list[float]:
    if len(samples) <= margin:
        raise InputError(
            f"a sound of {len(samples)} samples is too short: a frame reaches {margin} beyond its ends",
            hint='add silence, or the step {"step": "audio.fit", "samples": N} before this one',
        )
    inner = list(samples)
    return inner[margin:0:-1] + inner + inner[-2 : -margin - 2 : -1]


def _log(value: float, kind: str, floor: float) -> float:
    if kind == "log10":
        return math.log10(max(value, floor))
    return math.log(max(value, floor) if kind == "ln" else value + floor)


def _plain(
    samples: Sequence[float], count: int, p: dict[str, Any], window: list[float], bands: list[Band]
) -> list[list[float]]:
    transform, rows, size = RealFourier(p["fft"]), [], len(window)
    fill = [0.0] * (p["fft"] - size)
    for frame in range(count):
        start = frame * p["hop"]
        part = _prepared(samples[start : start + size], p)
        part = [sample * weight for sample, weight in zip(part, window, strict=True)]
        energy = [re * re + im * im for re, im in transform(part + fill)]
        if p["power"] == 1:
            energy = list(map(math.sqrt, energy))
        row = []
        for first, weights in bands:
            total = 0.0
            for offset, weight in enumerate(weights):
                total += energy[first + offset] * weight
            row.append(total)
        rows.append(row)
    return rows


def _prepared(part: Sequence[float], p: dict[str, Any]) -> Sequence[float]:
    if p["remove_mean"]:
        mean = math.fsum(part) / len(part)
        part = [sample - mean for sample in part]
    if p["preemphasis"]:
        # Kaldi takes the first sample's own value for the one before it.
        before = [part[0], *part[:-1]]
        part = [sample - p["preemphasis"] * other for sample, other in zip(part, before, strict=True)]
    return part


def _by_numpy(
    samples: Sequence[float], count: int, p: dict[str, Any], window: list[float], bands: list[Band]
) -> list[list[float]]:
    import numpy as np

    values = np.asarray(samples, np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(values, len(window))[:: p["hop"]][:count]
    if p["remove_mean"]:
        frames = frames - frames.mean(axis=1, keepdims=True)
    if p["preemphasis"]:
        frames = frames - p["preemphasis"] * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    spectrum = np.fft.rfft(frames * np.array(window), n=p["fft"], axis=1)
    energy = spectrum.real**2 + spectrum.imag**2
    if p["power"] == 1:
        energy = np.sqrt(energy)
    matrix = np.zeros((p["fft"] // 2 + 1, len(bands)))
    for band, (first, weights) in enumerate(bands):
        matrix[first : first + len(weights), band] = weights
    rows: list[list[float]] = (energy @ matrix).tolist()
    return rows
