"""`audio.mfcc`: the logarithms of mel bands to cepstral coefficients, frame by frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import flat, floats

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "coefficients": Parameter("whole", 13, low=1, high=512),
    # `ortho`: the orthonormal transform, as librosa's; `tensorflow`: the first coefficient is larger by sqrt(2).
    "norm": Parameter("choice", "ortho", choices=("ortho", "tensorflow")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes [frames, coefficients] of [frames, mels], as `audio.log_mel` gives them.

    The discrete cosine transform of the second kind, in float64 and rounded once. Sources: librosa's `feature.mfcc`,
    TensorFlow's `signal.mfccs_from_log_mel_spectrograms`.
    """
    count, norm = parameters["coefficients"], parameters["norm"]
    tables: dict[int, list[list[float]]] = {}

    def apply(tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG001
        if len(tensor.shape) != 2 or tensor.shape[1] < count:
            raise InputError(
                f"a tensor of shape {list(tensor.shape)} has no {count} coefficients, expected [frames, mels]",
                hint='put {"step": "audio.log_mel"} before, its `axes` frames_first and its `mels` large enough',
            )
        frames, mels = tensor.shape
        table = tables.get(mels)
        if table is None:
            table = tables[mels] = _cosines(mels, count, norm)
        values, made = flat(tensor), []
        for at in range(0, frames * mels, mels):
            row = values[at : at + mels]
            for weights in table:
                total = 0.0
                for value, weight in zip(row, weights, strict=True):
                    total += value * weight
                made.append(total)
        return floats(made, (frames, count))

    return apply


def _cosines(mels: int, count: int, norm: str) -> list[list[float]]:
    """Return the weights of the bands for each coefficient."""
    scale = math.sqrt(2.0 / mels)
    first = math.sqrt(1.0 / mels) if norm == "ortho" else scale
    return [
        [(scale if k else first) * math.cos(math.pi * k * (2 * n + 1) / (2 * mels)) for n in range(mels)]
        for k in range(count)
    ]
