"""`post.pool`: a vector for each token to one for the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import floats, rows
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "tensor": Parameter("text", None),
    "method": Parameter("choice", "mean", choices=("mean", "first", "last", "max", "none")),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that pools [tokens, width] to [width], over the tokens that are not padding.

    `first` is the token `[CLS]`; `none` keeps all vectors. Sums are float64. Source: sentence-transformers'
    `models.Pooling`.
    """
    read, method = reader(parameters["tensor"], place, "post.pool"), parameters["method"]

    def apply(value: Any, item: Item) -> Tensor:
        tensor = read(value)
        if len(tensor.shape) != 2:
            raise ExecutionError(
                f"the output has shape {list(tensor.shape)}, expected [tokens, width]",
                hint='without the step post.pool: {"step": "post.tensor"}',
            )
        vectors = rows(tensor)
        if item.encoding is not None:
            mask = item.encoding.attention_mask
            vectors = [vector for vector, counts in zip(vectors, mask, strict=False) if counts]
        if method == "none":
            return floats([number for vector in vectors for number in vector], (len(vectors), tensor.shape[1]))
        return floats(_pooled(vectors, method), tensor.shape[1:])

    return apply


def _pooled(vectors: list[Sequence[float]], method: str) -> Sequence[float]:
    if method in ("first", "last"):
        return vectors[0 if method == "first" else -1]
    if method == "max":
        return list(map(max, *vectors)) if len(vectors) > 1 else vectors[0]
    if has_numpy():
        import numpy as np

        mean: list[float] = (np.add.reduce([np.asarray(one, np.float64) for one in vectors], 0) / len(vectors)).tolist()
        return mean
    totals = [0.0] * len(vectors[0])
    for vector in vectors:
        totals = [total + number for total, number in zip(totals, vector, strict=True)]
    return [total / len(vectors) for total in totals]
