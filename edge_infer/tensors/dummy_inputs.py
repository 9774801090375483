"""Zero inputs that fit a model's specs, for timing a model without examples."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tensors.tensor import TensorSpec


def dummy_inputs(specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return zeros (or empty strings) of the specs' shapes, each free dimension being 1."""
    feeds: dict[str, Any] = {}
    for spec in specs:
        shape = tuple(dim if isinstance(dim, int) else 1 for dim in spec.shape)
        data: Any = [""] * prod(shape) if spec.dtype is DType.STRING else bytes(spec.dtype.nbytes(shape))
        feeds[spec.name] = Tensor(data, spec.dtype, shape)
    return feeds
