"""NON_MAX_SUPPRESSION: of boxes that overlap, the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import constant, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def suppress(operator: Operator, graph: Graph) -> None:
    """The places of the boxes that are left, filled with zeros, their number, and of version 5 their scores."""
    boxes, scores, *outputs = tensor(operator, 0), tensor(operator, 1), *operator.outputs
    most = int(constant(operator, 2).reshape(-1)[0])
    is_scored = operator.code == "NON_MAX_SUPPRESSION_V5"
    if is_scored and constant(operator, 5).reshape(-1)[0] != 0:
        raise UnsupportedModel("scores that fall with the overlap (soft_nms_sigma)")
    lists = [graph.node("Unsqueeze", [graph.real(boxes), graph.integers(0)])]
    lists.append(graph.node("Unsqueeze", [graph.real(scores), graph.integers(0, 1)]))
    limits = [graph.node("Reshape", [graph.raw(tensor(operator, place)), graph.integers(1)]) for place in (3, 4)]
    chosen = graph.node("NonMaxSuppression", [*lists, graph.integers(most), *limits])
    places = graph.node("Gather", [chosen, graph.constant(np.array(2, np.int64))], axis=1)
    count = graph.node("Shape", [places])
    left = graph.node("Concat", [graph.integers(0), graph.node("Sub", [graph.integers(most), count])], axis=0)
    graph.give_raw(outputs[0], graph.node("Cast", [graph.node("Pad", [places, left])], to=6))
    if is_scored:
        found = graph.node("Gather", [graph.real(scores), places])
        graph.give(outputs[1], graph.node("Pad", [found, left]))
    number = graph.node("Reshape", [count, graph.integers()])
    graph.give_raw(outputs[-1], graph.node("Cast", [number], to=6))


RULES = dict.fromkeys(("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"), suppress)
