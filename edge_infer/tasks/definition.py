"""The definition of a pipeline: what a bundle's manifest says in `task` and `pipeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError, ManifestError, UnsupportedError, did_you_mean, listed
from edge_infer.tasks.parameters import shown
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.steps import Step, check_flow, read_step

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.bundle.manifest import Manifest

#: The version of the format; another one is refused.
VERSION = 1
#: A chain that makes all inputs of the model at once, such as the tokens of a text.
ALL_INPUTS = "*"
_MAX_STEPS = 64
# A chain that can be typed in the place of none, by what it begins with.
_BEGINNINGS = {
    "raw": '[{"step": "image.decode"}, {"step": "image.to_tensor"}]',
    "outputs": '[{"step": "post.tensor"}]',
}


class Definition(NamedTuple):
    """The definition of a pipeline: its task, and the steps before and after the model.

    Attributes:
        task: The task's name, such as `image-classification`.
        inputs: By input of the model the steps that make it; `*` for steps that make several.
        outputs: The steps from the model's outputs to the answer.
        source: Where the definition was found, such as `tflite-metadata`; empty where nobody says.
        vectors: The path of the file of vectors that prove it; None where there is none.
    """

    task: str
    inputs: dict[str, list[Step]]
    outputs: list[Step]
    source: str = ""
    vectors: str | None = None

    @property
    def arguments(self) -> set[str]:
        """The arguments that the caller of the pipeline may give, such as `top_k`."""
        chains = [*self.inputs.values(), self.outputs]
        return {name for chain in chains for step in chain for name, one in step.declared.items() if one.is_argument}

    def to_json(self) -> dict[str, Any]:
        """Describe this definition as the manifest's `pipeline` does."""
        document: dict[str, Any] = {"version": VERSION}
        if self.source:
            document["source"] = self.source
        document["inputs"] = {name: [step.to_json() for step in steps] for name, steps in self.inputs.items()}
        document["outputs"] = [step.to_json() for step in self.outputs]
        if self.vectors is not None:
            document["vectors"] = self.vectors
        return document


def definition_of(manifest: Manifest) -> Definition:
    """Return the definition that a manifest holds.

    Raises:
        UnsupportedError: It holds none.
        ManifestError: It is wrong.
    """
    if manifest.task is None or manifest.pipeline is None:
        raise UnsupportedError(
            f"`{manifest.name}` does not say what stands before and after the model",
            hint="edge-infer convert MODEL --task image-classification --labels FILE -o model.bundle",
        )
    return read_definition(manifest.task, manifest.pipeline)


def read_definition(task: str, document: Mapping[str, Any]) -> Definition:
    """Read a definition from the JSON of a manifest.

    Raises:
        ManifestError: It is of another version, or wrong; the message names the step and the parameter.
    """
    get_task(task)
    if document.get("version") != VERSION:
        raise ManifestError(
            f"pipeline: version {document.get('version')!r}, this edge-infer reads {VERSION}",
            hint="pip install --upgrade edge-infer",
            is_newer=True,
            got=document.get("version"),
        )
    inputs, outputs = document.get("inputs"), document.get("outputs")
    if not isinstance(inputs, dict) or not inputs:
        raise ManifestError(
            f"pipeline: `inputs` is {shown(inputs)}, expected an object of lists of steps, by the model's inputs",
            hint=f'"inputs": {{"NAME": {_BEGINNINGS["raw"]}}}',
            field="inputs",
        )
    source, vectors = document.get("source", ""), document.get("vectors")
    for name, value in (("source", source), ("vectors", vectors or "")):
        if not isinstance(value, str):
            raise ManifestError(
                f"pipeline: `{name}` is {shown(value)}, expected a text", hint=f'leave "{name}" out', field=name
            )
    chains = {}
    for name, steps in inputs.items():
        ends = ("tensors",) if name == ALL_INPUTS else ("tensor", "frames")
        chains[name] = _chain(steps, "raw", ends, f"pipeline.inputs[{name!r}]")
    answers = ("answer", "tensor")
    return Definition(task, chains, _chain(outputs, "outputs", answers, "pipeline.outputs"), source, vectors)


def check_arguments(definition: Definition, arguments: Mapping[str, Any]) -> None:
    """Check what the caller of a pipeline asks for.

    Raises:
        InputError: An argument is unknown to the task and its steps, or does not fit.
    """
    known = sorted({*definition.arguments, *get_task(definition.task).arguments})
    steps = [step for chain in (*definition.inputs.values(), definition.outputs) for step in chain]
    for name, value in arguments.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"it takes {listed(known) or 'none'}"
            raise InputError(f"{definition.task} takes no argument `{name}`", hint=hint, argument=name)
        for step in steps:
            if value is not None and name in step.declared and step.declared[name].is_argument:
                try:
                    step.declared[name].check(name, value)
                except ManifestError as error:
                    hint = f"{name}={step.declared[name].example(value)}"
                    raise InputError(error.message, hint=hint, argument=name, got=value) from error


def _chain(steps: Any, begins: str, ends: tuple[str, ...], where: str) -> list[Step]:
    if not isinstance(steps, list) or not 1 <= len(steps) <= _MAX_STEPS:
        found = f"a list of {len(steps)} steps" if isinstance(steps, list) else shown(steps)
        raise ManifestError(
            f"{where} is {found}, expected a list of 1 to {_MAX_STEPS} steps", hint=f"write {_BEGINNINGS[begins]}"
        )
    read = [read_step(step, f"{where}[{i}]") for i, step in enumerate(steps)]
    check_flow(read, begins, ends, where)
    return read
