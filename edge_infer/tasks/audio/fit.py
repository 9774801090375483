"""`audio.fit`: a sound of the length that the model takes."""

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
    "samples": Parameter("whole", low=1, high=2**28),
    # Whether a shorter sound is filled up with silence; otherwise only longer ones are cut.
    "pad": Parameter("flag", True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that cuts the end off a longer sound, and adds silence to a shorter one."""
    length, pads = parameters["samples"], parameters["pad"]

    def apply(sound: Sound, item: Item) -> Sound:  # noqa: ARG001
        samples = sound.samples[:length]
        if pads and len(samples) < length:
            samples = samples + array("f", bytes(4 * (length - len(samples))))
        return Sound(samples, sound.rate)

    return apply
