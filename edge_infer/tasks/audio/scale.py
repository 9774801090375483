"""`audio.scale`: a sound made louder or softer."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "factor": Parameter("real", 1.0, low=1e-9, high=1e9),
    # Whether the samples are divided before: by the `loudest` one, whatever its sign, or by the `highest` one.
    "by": Parameter("choice", "none", choices=("none", "loudest", "highest")),
    # The samples above this are set to it, those below its negative to that; None for all as they are.
    "clip": Parameter("real", None, low=0, high=1e9),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that gives the sound with other levels, each sample rounded once to float32.

    A factor of 32768 gives the levels of 16-bit samples, which Kaldi's features are made of; `highest` and a clip of 1
    are the rule of MLPerf Tiny's keyword spotting. A sound of silence stays as it is.
    """
    factor, by, most = parameters["factor"], parameters["by"], parameters["clip"]

    def apply(sound: Sound, item: Item) -> Sound:  # noqa: ARG001
        samples = sound.samples
        divisor = 1.0
        if by != "none" and len(samples):
            divisor = max(map(abs, samples)) if by == "loudest" else max(samples)
        scale = divisor if divisor > 0 else 1.0
        made = array("f", [sample * factor / scale for sample in samples])
        if most is not None:
            made = array("f", [min(max(sample, -most), most) for sample in made])
        return Sound(made, sound.rate)

    return apply
