"""How each TFLite operator is written in ONNX: a table from its name to a short function, gathered from the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.from_tflite.rules import (
    activations,
    convolution,
    dense,
    elementwise,
    indexing,
    padding,
    pooling,
    quantizers,
    reduction,
    resize,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.from_tflite.builder import Node

    Rule = Callable[[Node], None]

RULES: dict[str, Rule] = {
    **activations.RULES,
    **convolution.RULES,
    **dense.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **padding.RULES,
    **pooling.RULES,
    **quantizers.RULES,
    **reduction.RULES,
    **resize.RULES,
    **shape.RULES,
}
