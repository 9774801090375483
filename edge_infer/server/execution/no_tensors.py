"""NoTensors: the runnable of a model that takes raw data or prompts, and refuses tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.backends.base import Placement, Runnable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edge_infer.backends.base import Call
    from edge_infer.errors import InputError
    from edge_infer.tensors.tensor import Array


class NoTensors(Runnable):
    """Refuses tensors.

    Args:
        refusal: Makes the error that says what the model takes.
    """

    placement = Placement("cpu")
    inputs = ()
    outputs = ()
    is_thread_safe = True

    def __init__(self, refusal: Callable[[], InputError]) -> None:
        self._refusal = refusal

    def run(
        self,
        feeds: Mapping[str, Array],  # noqa: ARG002
        outputs: Sequence[str],  # noqa: ARG002
        into: Mapping[str, Array],  # noqa: ARG002
        keep: Collection[str],  # noqa: ARG002
    ) -> dict[str, Array]:
        """Refuse.

        Raises:
            InputError: Always.
        """
        raise self._refusal()

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> Call:  # noqa: ARG002
        """Refuse as `run` does."""
        raise self._refusal()

    def close(self) -> None:
        """Give back nothing: the model has it."""
