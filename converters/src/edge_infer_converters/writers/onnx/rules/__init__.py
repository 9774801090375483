"""The rule of each TFLite operator: how its nodes of ONNX are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.onnx.rules import (
    blocks,
    control,
    dense,
    detections,
    elementwise,
    indexing,
    quantizers,
    recurrent,
    reduction,
    resize,
    shape,
    signals,
    suppression,
    updates,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

    Rule = Callable[[Operator, Graph], None]

#: By the operator's name in the schema.
RULES: dict[str, Rule] = {
    **windows.RULES,
    **dense.RULES,
    **elementwise.RULES,
    **shape.RULES,
    **blocks.RULES,
    **indexing.RULES,
    **reduction.RULES,
    **resize.RULES,
    **recurrent.RULES,
    **quantizers.RULES,
    **detections.RULES,
    **suppression.RULES,
    **updates.RULES,
    **signals.RULES,
    **control.RULES,
}
