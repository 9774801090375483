"""The steps of pipelines, each found by its name.

The step `image.resize` is the module `edge_infer/tasks/image/resize.py`, and in JavaScript
`web/src/tasks/image/resize.js`. The module declares its `PARAMETERS`, and `prepare(parameters, place)` returns the
function that does the work: it takes a value and the `Item` that the value belongs to, and returns the next value.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.parameters import Parameter
    from edge_infer.tasks.place import Place

    Apply = Callable[[Any, Item], Any]

#: Every step there is. To add one: its name here, a module in Python and one in JavaScript.
STEPS = (
    "audio.decode",
    "audio.fit",
    "audio.frame",
    "audio.log_mel",
    "audio.normalize",
    "audio.resample",
    "image.center_crop",
    "image.decode",
    "image.flip_channels",
    "image.letterbox",
    "image.rescale_normalize",
    "image.resize",
    "image.to_tensor",
    "post.answer_span",
    "post.boxes",
    "post.detections",
    "post.entities",
    "post.fill_mask",
    "post.mask",
    "post.nms",
    "post.normalize",
    "post.pool",
    "post.sigmoid",
    "post.softmax",
    "post.speech_segments",
    "post.tensor",
    "post.top_k",
    "tensor.constant",
    "tensor.dequantize",
    "tensor.quantize",
    "text.tokenize",
)


class Step(NamedTuple):
    """One step of a definition, checked.

    Attributes:
        name: Such as `image.resize`.
        parameters: All of its parameters, the defaults included.
        declared: What its parameters may be.
    """

    name: str
    parameters: dict[str, Any]
    declared: Mapping[str, Parameter]

    def prepare(self, place: Place) -> Apply:
        """Return the function that does the step's work.

        Args:
            place: What the bundle and the model offer, such as files and labels.

        Raises:
            ManifestError: The bundle or the model lacks what the step needs.
        """
        found: Apply = _module(self.name).prepare(self.parameters, place)
        return found

    def to_json(self) -> dict[str, Any]:
        """Describe this step as the manifest does: what is not the default."""
        given = {key: value for key, value in self.parameters.items() if self.declared[key].default != value}
        return {"step": self.name, **given}


def read_step(entry: Any, where: str) -> Step:
    """Read one step of a manifest.

    Raises:
        ManifestError: It is not an object, its name is unknown, or a parameter does not fit.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), str):
        raise ManifestError(f"{where} has no step's name, expected an object such as {{'step': 'image.decode'}}")
    name = entry["step"]
    if name not in STEPS:
        hint = did_you_mean(name, list(STEPS)) or "pip install --upgrade edge-infer, or choose from " + listed(
            list(STEPS)
        )
        raise ManifestError(f"{where}: there is no step `{name}` in this edge-infer", hint=hint, field=name)
    declared: Mapping[str, Parameter] = _module(name).PARAMETERS
    given = {key: value for key, value in entry.items() if key != "step"}
    return Step(name, checked(given, declared, f"{where} `{name}`"), declared)


def _module(name: str) -> Any:
    return import_module(f"edge_infer.tasks.{name}")
