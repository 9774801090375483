"""How each ONNX operator is written: a table from its name to a short function, gathered from the files here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.tflite.rules import (
    convolution,
    dense,
    einsum,
    elementwise,
    functions,
    indexing,
    logic,
    normalization,
    pooling,
    quantizers,
    recurrent,
    reduction,
    resize,
    sampling,
    shape,
    transposed_convolution,
)

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Rule

RULES: dict[str, Rule] = {
    **convolution.RULES,
    **dense.RULES,
    **einsum.RULES,
    **elementwise.RULES,
    **functions.RULES,
    **indexing.RULES,
    **logic.RULES,
    **normalization.RULES,
    **pooling.RULES,
    **quantizers.RULES,
    **recurrent.RULES,
    **reduction.RULES,
    **resize.RULES,
    **sampling.RULES,
    **shape.RULES,
    **transposed_convolution.RULES,
}
