"""The golden examples of a bundle: inputs, and what the source made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.dtypes import DType
from edge_infer.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer import codec

GOLDEN_EXAMPLES = 32


def golden_examples(
    calls: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[Mapping[str, np.ndarray]]
) -> list[codec.Example]:
    """Return the first calls with their outputs, as the bundle stores them."""
    pairs = list(zip(calls, outputs, strict=True))[:GOLDEN_EXAMPLES]
    return [(_tensors(inputs), _tensors(results)) for inputs, results in pairs]


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "OU":
        return Tensor([str(text) for text in array.reshape(-1)], DType.STRING, array.shape)
    return Tensor(array.tobytes(), DType.parse(array.dtype), array.shape)
