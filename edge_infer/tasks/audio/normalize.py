"""`audio.normalize`: samples to a tensor, with mean 0 and variance 1 where the model wants that."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import floats

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.audio.sound import Sound
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "method": Parameter("choice", "none", choices=("none", "mean_variance", "peak")),
    "epsilon": Parameter("real", 1e-7, low=0),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes a tensor [samples] of float32.

    `mean_variance` is `(x - mean) / sqrt(variance + epsilon)`, the rule of transformers' `Wav2Vec2FeatureExtractor`;
    `peak` divides by the loudest sample. Sums are float64.
    """
    method, epsilon = parameters["method"], parameters["epsilon"]

    def apply(sound: Sound, item: Item) -> Tensor:  # noqa: ARG001
        samples = sound.samples
        if method == "mean_variance":
            mean = math.fsum(samples) / len(samples)
            variance = math.fsum((sample - mean) ** 2 for sample in samples) / len(samples)
            divisor = math.sqrt(variance + epsilon)
            samples = array("f", [(sample - mean) / divisor for sample in samples])
        elif method == "peak":
            peak = max(map(abs, samples)) or 1.0
            samples = array("f", [sample / peak for sample in samples])
        return floats(samples, (len(samples),))

    return apply
