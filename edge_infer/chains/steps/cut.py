"""`cut`: a sound and its stretches of speech to a sound for each stretch."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, of_work
from edge_infer.tasks.audio.decode import PARAMETERS, prepare
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.shared import beginnings
from edge_infer.tasks.steps import read_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step."""
    return of_work(step, step.parameters, lambda _opening: _Cut(step, bundle))


class _Cut:
    def __init__(self, step: ChainStep, bundle: Bundle) -> None:
        self._margin_s = step.parameters["margin_ms"] / 1000
        self._most: int = step.parameters["most"]
        place = Place(bundle.read, (), (), ())
        self._decode = prepare({name: one.default for name, one in PARAMETERS.items()}, place)
        self.beginnings: Sequence[Beginning] = beginnings(
            [read_step({"step": "audio.decode"}, step.name)], place, bundle.manifest
        )

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:
        found = []
        for one in values:
            sound, _ = shared.through(one["sound"], [self._decode], self.beginnings, Item())
            segments = one["segments"][: self._most]
            found.append([stretch(sound, part["start"], part["end"], self._margin_s) for part in segments])
        return found

    def close(self) -> None:
        pass


def stretch(sound: Sound, start_s: float, end_s: float, margin_s: float) -> Sound:
    """Return the samples from one time to another, widened by a margin; at least one sample."""
    count = len(sound.samples)
    first = min(max(floor((start_s - margin_s) * sound.rate + 0.5), 0), count - 1)
    last = min(max(floor((end_s + margin_s) * sound.rate + 0.5), first + 1), count)
    return Sound(sound.samples[first:last], sound.rate)
