"""What a chain's steps take and give: kinds of values, one or lists of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.tasks.definition import Definition

#: What the caller of a chain can give.
INPUTS = ("image", "sound", "text", "tensor")
#: All kinds. `boxes` are the answer of a detector, `segments` stretches of a sound, `hits` what an index found,
#: `tensors` the outputs of a model by name, `answer` any other JSON.
KINDS = (*INPUTS, "boxes", "segments", "hits", "tensors", "answer")


class Kind(NamedTuple):
    """The kind of a value.

    Attributes:
        name: One of `KINDS`.
        depth: 0 for one value, 1 for a list of them, 2 for a list of lists, ...
    """

    name: str
    depth: int = 0

    def __str__(self) -> str:
        return self.name + "[]" * self.depth


class Work(NamedTuple):
    """What one `do` of a step means.

    Attributes:
        takes: The kinds of what it is fed, by name. `*` stands for any further names.
        optional: The names that may be left out; one of them has to be there.
        gives: The kind of what it makes; empty where the bundle decides.
        depth: 1 where it makes a list of each.
        holds: What it has in the chain's bundle: `bundle`, `index` or nothing.
        parameters: What `with` may say; None where the bundle decides.
    """

    takes: Mapping[str, str]
    gives: str
    optional: tuple[str, ...] = ()
    depth: int = 0
    holds: str = ""
    parameters: Mapping[str, Parameter] | None = None


#: Everything that a step can do. To add one: a line here, a module in `steps/` and one in `web/src/chains/steps.js`.
WORKS = {
    # A bundle with a pipeline; what it takes and gives is its task's.
    "model": Work({}, "", holds="bundle"),
    # A bundle without one, fed with tensors by the names of its inputs.
    "tensors": Work({"*": "tensor"}, "tensors", holds="bundle", parameters={}),
    "crop": Work(
        {"image": "image", "boxes": "boxes"},
        "image",
        depth=1,
        parameters={
            # How much of its size a box is widened by on each side.
            "margin": Parameter("real", 0.0, low=0, high=4),
            "label": Parameter("text", None),
            "min_score": Parameter("real", 0.0, low=0, high=1),
            "most": Parameter("whole", 64, low=1, high=10_000),
        },
    ),
    "cut": Work(
        {"sound": "sound", "segments": "segments"},
        "sound",
        depth=1,
        parameters={
            "margin_ms": Parameter("real", 0.0, low=0, high=60_000),
            "most": Parameter("whole", 256, low=1, high=10_000),
        },
    ),
    "search": Work(
        {"vector": "tensor", "text": "text"},
        "hits",
        optional=("vector", "text"),
        holds="index",
        parameters={
            "k": Parameter("whole", 10, low=1, high=10_000),
            "mode": Parameter("choice", "vectors", choices=("vectors", "words", "hybrid")),
            "full_scan": Parameter("flag", False),
        },
    ),
    "rank": Work(
        {"query": "text", "hits": "hits"},
        "hits",
        holds="bundle",
        parameters={"most": Parameter("whole", 10, low=1, high=10_000)},
    ),
    "prompt": Work(
        {"*": ""},
        "text",
        parameters={
            "template": Parameter("text"),
            "separator": Parameter("text", "\n\n"),
            "max_characters": Parameter("whole", 4000, low=1, high=1_000_000),
        },
    ),
    "generate": Work({"text": "text"}, "text", holds="bundle"),
}


def given_by(definition: Definition) -> str:
    """Return the kind of what a pipeline answers with."""
    if definition.task == "text-ranking":
        return "answer"
    last = definition.outputs[-1].name
    if last == "post.detections":
        return "boxes"
    if last == "post.speech_segments":
        return "segments"
    return "tensor" if STEPS[last].gives == "tensor" else "answer"
