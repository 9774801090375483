"""The steps of pipelines, each found by its name.

The step `image.resize` is the module `edge_infer/tasks/image/resize.py`, and in JavaScript
`web/src/tasks/image/resize.js`. The module declares its `PARAMETERS`, and `prepare(parameters, place)` returns the
function that does the work: it takes a value and the `Item` that the value belongs to, and returns the next value.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import checked, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.parameters import Parameter
    from edge_infer.tasks.place import Place

    Apply = Callable[[Any, Item], Any]


class Flow(NamedTuple):
    """The kinds of value that a step takes and gives.

    `raw` is what the caller gave, `outputs` are the model's by name, `tensors` its inputs by name, `frames` a list of
    tensors for the steps of a stream.
    """

    takes: tuple[str, ...]
    gives: str


_RAW, _IMAGE, _SOUND, _OUTPUTS, _TENSOR = ("raw",), ("image",), ("sound",), ("outputs",), ("outputs", "tensor")
_TABLE = ("table",)

#: Every step there is. To add one: a line here, a module in Python and one in JavaScript.
STEPS = {
    "audio.decode": Flow(_RAW, "sound"),
    "audio.fit": Flow(_SOUND, "sound"),
    "audio.frame": Flow(_SOUND, "frames"),
    "audio.log_mel": Flow(_SOUND, "tensor"),
    "audio.mfcc": Flow(("tensor",), "tensor"),
    "audio.micro_features": Flow(_SOUND, "tensor"),
    "audio.normalize": Flow(_SOUND, "tensor"),
    "audio.resample": Flow(_SOUND, "sound"),
    "audio.scale": Flow(_SOUND, "sound"),
    "image.center_crop": Flow(_IMAGE, "image"),
    "image.decode": Flow(_RAW, "image"),
    "image.flip_channels": Flow(_IMAGE, "image"),
    "image.letterbox": Flow(_IMAGE, "image"),
    "image.rescale_normalize": Flow(_IMAGE, "tensor"),
    "image.resize": Flow(_IMAGE, "image"),
    "image.to_tensor": Flow(_IMAGE, "tensor"),
    "post.answer_span": Flow(_OUTPUTS, "answer"),
    "post.boxes": Flow(_OUTPUTS, "detections"),
    "post.ctc": Flow(_TENSOR, "answer"),
    "post.depth": Flow(_TENSOR, "answer"),
    "post.detections": Flow(("detections",), "answer"),
    "post.entities": Flow(_TENSOR, "answer"),
    "post.fill_mask": Flow(_TENSOR, "answer"),
    "post.graph": Flow(_OUTPUTS, "outputs"),
    "post.image": Flow(_TENSOR, "answer"),
    "post.label": Flow(_TENSOR, "answer"),
    "post.mask": Flow(_TENSOR, "answer"),
    "post.nearest": Flow(_TENSOR, "tensor"),
    "post.nms": Flow(("detections",), "detections"),
    "post.normalize": Flow(_TENSOR, "tensor"),
    "post.pool": Flow(_TENSOR, "tensor"),
    "post.sigmoid": Flow(_TENSOR, "tensor"),
    "post.softmax": Flow(_TENSOR, "tensor"),
    "post.speech_segments": Flow(_TENSOR, "answer"),
    "post.tensor": Flow(_TENSOR, "tensor"),
    "post.top_k": Flow(_TENSOR, "answer"),
    "post.value": Flow(_TENSOR, "answer"),
    "tabular.categories": Flow(_TABLE, "table"),
    "tabular.clip": Flow(_TABLE, "table"),
    "tabular.columns": Flow(_RAW, "table"),
    "tabular.derive": Flow(_TABLE, "table"),
    "tabular.impute": Flow(_TABLE, "table"),
    "tabular.scale": Flow(_TABLE, "table"),
    "tabular.tensor": Flow(_TABLE, "tensor"),
    "tensor.constant": Flow(_RAW, "tensor"),
    "tensor.dequantize": Flow(_OUTPUTS, "outputs"),
    "tensor.fit": Flow(("tensor",), "tensor"),
    "tensor.frames": Flow(("tensor",), "frames"),
    "tensor.graph": Flow(("tensor",), "tensor"),
    "tensor.normalize": Flow(("tensor",), "tensor"),
    "tensor.quantize": Flow(("tensor",), "tensor"),
    "tensor.reshape": Flow(("tensor",), "tensor"),
    "text.tokenize": Flow(_RAW, "tensors"),
}


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


def check_flow(steps: Sequence[Step], begins: str, ends: tuple[str, ...], where: str) -> None:
    """Check that each step takes what the one before it gives.

    Args:
        steps: A chain.
        begins: What its first step is given.
        ends: What its last step may give.
        where: The chain's place, for errors.

    Raises:
        ManifestError: A step cannot stand where it does.
    """
    given, before = begins, "the chain"
    for step in steps:
        flow = STEPS[step.name]
        if given not in flow.takes:
            raise ManifestError(
                f"{where}: `{step.name}` takes {' or '.join(flow.takes)}, and {before} gives {given}",
                hint=f"put before it {_bridges(given, flow.takes)}",
                field=step.name,
            )
        given, before = flow.gives, f"`{step.name}`"
    if given not in ends:
        raise ManifestError(
            f"{where} ends with {before}, which gives {given}, expected {' or '.join(ends)}",
            hint=f"put behind it {_bridges(given, ends)}",
        )


def _bridges(given: str, wanted: tuple[str, ...]) -> str:
    """Name the steps that lead to one of the kinds wanted: those that take what is given, where there are any."""
    giving = [name for name, flow in STEPS.items() if flow.gives in wanted]
    fitting = [name for name in giving if given in STEPS[name].takes]
    return f"one of {listed(fitting)}" if fitting else f"what leads to one of {listed(giving)}"


def prepare_chain(steps: Sequence[Step], place: Place) -> list[Apply]:
    """Prepare the steps of a chain: those before a graph make its input, those after one read its outputs.

    Args:
        steps: The chain.
        place: What the bundle and the model offer.

    Raises:
        ManifestError: The bundle or the model lacks what a step needs.
    """
    is_before = bool(place.input)
    made = []
    for step in reversed(steps) if is_before else steps:
        apply = step.prepare(place)
        made.append(apply)
        if is_before and (spec := getattr(apply, "takes", None)) is not None:
            place = place.making(spec)
        elif (specs := getattr(apply, "gives", None)) is not None:
            place = place.giving(specs)
    return made[::-1] if is_before else made


def read_step(entry: Any, where: str) -> Step:
    """Read one step of a manifest.

    Raises:
        ManifestError: It is not an object, its name is unknown, or a parameter does not fit.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), str):
        raise ManifestError(
            f"{where} is {shown(entry)}, expected an object with the name of a step", hint='{"step": "image.decode"}'
        )
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
