"""Choose the golden examples of a bundle: inputs and outputs of the source that prove an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer.formats import safetensors

#: How many of them there are at most, unless a number is asked for.
EXAMPLES = 32
#: How many bytes they take together, unless the first alone has more: so many, or this share of the source.
_MAX_BYTES, _MAX_SHARE = 64_000, 0.15


def count(
    calls: Sequence[Mapping[str, np.ndarray]],
    outputs: Sequence[Mapping[str, np.ndarray]],
    source_bytes: int,
    asked: int = 0,
) -> int:
    """Return how many of the first calls are golden examples: at least one.

    Args:
        calls: The inputs of each call.
        outputs: The source's outputs of each call.
        source_bytes: The size of the source.
        asked: So many, whatever their size; 0 for as many as are small beside the model.
    """
    if asked:
        return min(asked, len(calls))
    left = max(_MAX_BYTES, _MAX_SHARE * source_bytes)
    for number, (inputs, results) in enumerate(zip(calls, outputs, strict=True)):
        left -= sum(array.nbytes for array in (*inputs.values(), *results.values()))
        if number == EXAMPLES or (number and left < 0):
            return number
    return len(calls)


def examples(
    calls: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[Mapping[str, np.ndarray]]
) -> list[safetensors.Example]:
    """Return calls with the source's outputs, as a bundle keeps them."""
    return [(_tensors(inputs), _tensors(results)) for inputs, results in zip(calls, outputs, strict=True)]


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "OU":
        return Tensor([str(text) for text in array.reshape(-1)], DType.STRING, array.shape)
    return Tensor(array.tobytes(), DType.parse(array.dtype), array.shape)
