"""`audio.frame`: a sound cut into the frames that a streamed model takes one after the other."""

from __future__ import annotations

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
    "samples": Parameter("whole", low=1, high=2**20),
    # How many samples of the frame before are put in front: 64 for Silero's models at 16 kHz.
    "context": Parameter("whole", 0, low=0, high=2**20),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that cuts a sound: a list of tensors [context + samples], the last filled with silence."""
    length, context = parameters["samples"], parameters["context"]

    def apply(sound: Sound, item: Item) -> list[Tensor]:
        item.frame = length
        count = -(-len(sound.samples) // length)
        silence = array("f", bytes(4 * (count * length - len(sound.samples))))
        before = array("f", bytes(4 * context)) if item.before is None else item.before
        samples = before + sound.samples + silence
        starts = range(0, count * length, length)
        return [floats(samples[at : at + context + length], (context + length,)) for at in starts]

    return apply
