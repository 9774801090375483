"""The surroundings of a pipeline's steps: the specs and files of their bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import BundleError, ManifestError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.tensors.tensor import TensorSpec


class Place:
    """The specs and files of a bundle, for the steps of its pipeline.

    Args:
        read: Returns the bytes of a file of the bundle, checked.
        labels: The names of the classes; an empty list where there are none.
        inputs: The specs of the model's inputs.
        outputs: The specs of its outputs.
        input: The input that this chain of steps makes; empty for a chain that makes several, and for outputs.
    """

    def __init__(
        self,
        read: Callable[[str], bytes],
        labels: Sequence[str],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        input: str = "",  # noqa: A002
    ) -> None:
        self.read = read
        self.labels = list(labels)
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        self.input = input

    def making(self, spec: TensorSpec) -> Place:
        """Return the surroundings of steps that make another tensor than the model's input, such as a graph's."""
        return Place(self.read, self.labels, [spec], [*self.outputs.values()], spec.name)

    def giving(self, outputs: Sequence[TensorSpec]) -> Place:
        """Return the surroundings of steps that read other outputs than the model's, such as a graph's."""
        return Place(self.read, self.labels, [*self.inputs.values()], outputs, self.input)

    def spec(self) -> TensorSpec:
        """Return the spec of the input that this chain makes.

        Raises:
            ManifestError: The chain makes several inputs, or the model has none of this name.
        """
        if self.input not in self.inputs:
            raise no_input(self.input, list(self.inputs))
        return self.inputs[self.input]

    def output(self, name: str | None, step: str) -> str:
        """Return the name of the output that a step reads: the one it names, else the model's only one.

        Raises:
            ManifestError: The model has none of this name, or several and the step names none.
        """
        if name is None and len(self.outputs) == 1:
            return next(iter(self.outputs))
        if name is None or name not in self.outputs:
            said = "names none" if name is None else f"names `{name}`"
            raise ManifestError(
                f"pipeline: `{step}` reads one output and {said}; the model's are {listed(list(self.outputs))}",
                hint=f'{{"step": "{step}", "tensor": "{next(iter(self.outputs), "NAME")}"}}',
                field=name,
            )
        return name

    def label(self, index: int) -> str:
        """Return the name of a class; `LABEL_3` where the bundle has no labels, as transformers writes it.

        Raises:
            BundleError: It has labels, and none for this class.
        """
        if not self.labels:
            return f"LABEL_{index}"
        if not 0 <= index < len(self.labels):
            raise self._misfit(f"the model found class {index}")
        return self.labels[index]

    def check_labels(self, classes: int) -> None:
        """Refuse labels that are not one for each class of the model; none at all are right.

        Raises:
            BundleError: There are more of them, or fewer.
        """
        if self.labels and len(self.labels) != classes:
            raise self._misfit(f"the model gives {classes} scores")

    def _misfit(self, said: str) -> BundleError:
        return BundleError(
            f"{said}, and the bundle has {len(self.labels)} labels",
            hint="edge-infer convert ... --labels FILE, a name for each class",
        )


def no_input(name: str, known: list[str]) -> ManifestError:
    """Return the error of steps for an input that the model does not have.

    Args:
        name: The input that the steps are for.
        known: The inputs of the model.
    """
    hint = did_you_mean(name, known) or f'"inputs": {{"{next(iter(known), "NAME")}": [...]}}'
    return ManifestError(
        f"pipeline: the model has no input `{name}`; its inputs are {listed(known)}", hint=hint, field=name
    )
