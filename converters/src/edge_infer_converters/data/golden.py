"""Choose the golden examples of a bundle: inputs and outputs of the source that prove an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer.formats import safetensors

#: How many of them there are at most.
EXAMPLES = 32


def examples(
    calls: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[Mapping[str, np.ndarray]]
) -> list[safetensors.Example]:
    """Return the first calls with the source's outputs, as a bundle keeps them."""
    pairs = list(zip(calls, outputs, strict=True))[:EXAMPLES]
    return [(_tensors(inputs), _tensors(results)) for inputs, results in pairs]


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "OU":
        return Tensor([str(text) for text in array.reshape(-1)], DType.STRING, array.shape)
    return Tensor(array.tobytes(), DType.parse(array.dtype), array.shape)
