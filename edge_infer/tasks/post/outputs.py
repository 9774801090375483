"""The output that a step after the model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from edge_infer.tasks.place import Place


def reader(name: str | None, place: Place, step: str) -> Callable[[Any], Tensor]:
    """Return the function that gives the tensor a step works on.

    It is the output that the step names, or the only one, where the step is the first; else what the step before gave.

    Args:
        name: The output's name in the definition; None where it names none.
        place: What the model offers.
        step: The step's name, for errors.

    Raises:
        ManifestError: The model has no such output.
    """
    if name is not None:
        place.output(name, step)

    def read(value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        found: Tensor = value[place.output(name, step)]
        return found

    return read
