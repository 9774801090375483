"""Every operator by its domain and name."""

from __future__ import annotations

from typing import Any

from edge_infer.backends.reference.operators import (
    attention,
    contrib,
    control,
    convolution,
    elementwise,
    images,
    indexing,
    losses,
    normalization,
    pools,
    products,
    quantizers,
    random,
    recurrent,
    reductions,
    resize,
    shapes,
    signals,
    support_vectors,
    tables,
    texts,
)

_MODULES = (
    *(attention, control, convolution, elementwise, images, indexing, losses, normalization, pools, products),
    *(quantizers, random, recurrent, reductions, resize, shapes, signals, texts),
)
OPERATORS: dict[str, dict[str, Any]] = {
    "": {name: function for module in _MODULES for name, function in module.OPERATORS.items()},
    "ai.onnx.ml": {**tables.OPERATORS, **support_vectors.OPERATORS},
    "com.microsoft": contrib.OPERATORS,
    "ai.onnx.preview": attention.PREVIEW,
    "ai.onnx.preview.training": losses.TRAINING,
}
#: Operators that move elements, or that know small types: they are given bits. Others are given numbers.
KEEPS_BITS = frozenset(
    name
    for module in (shapes, indexing, control, quantizers)
    for name in module.OPERATORS
    if name not in {*indexing.COMPUTES}
)
