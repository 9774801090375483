"""How each ONNX operator is written: a table from its name to a short function, gathered from the files here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.targets.tflite.rules import (
    convolution,
    dense,
    elementwise,
    normalization,
    pooling,
    reduction,
    shape,
)

if TYPE_CHECKING:
    from edge_infer_converters.targets.tflite.lowering import Rule

RULES: dict[str, Rule] = {
    **convolution.RULES,
    **dense.RULES,
    **elementwise.RULES,
    **normalization.RULES,
    **pooling.RULES,
    **reduction.RULES,
    **shape.RULES,
}
