"""Elements that are put in places of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

#: ONNX names the place of each element; more of them than this would weigh more than most models.
_MOST_PLACES = 2**17


def scatter(operator: Operator, graph: Graph) -> None:
    """Parts at the places that indices name, in zeros; parts for one place are added."""
    indices, updates = tensor(operator, 0), tensor(operator, 1)
    shape = graph.node("Cast", [graph.raw(tensor(operator, 2))], to=7)
    nothing = graph.node("Expand", [graph.constant(np.array(0, updates.dtype)), shape])
    places = graph.node("Cast", [graph.raw(indices)], to=7)
    found = graph.node("ScatterND", [nothing, places, graph.raw(updates)], reduction="add")
    graph.give_raw(operator.outputs[0], found)


def update(operator: Operator, graph: Graph) -> None:
    """A part at a place that is computed, which is moved so far that the part lies inside."""
    whole, part, start = (tensor(operator, place) for place in range(3))
    if -1 in (*whole.signature, *part.signature) or np.prod(part.shape) * whole.rank > _MOST_PLACES:
        raise UnsupportedModel(f"a part of shape {list(part.signature)} in {list(whole.signature)}")
    most = np.array(whole.shape, np.int64) - part.shape
    begin = graph.node("Cast", [graph.raw(start)], to=7)
    begin = graph.node("Max", [graph.node("Min", [begin, graph.integers(*most.tolist())]), graph.integers(0)])
    grid = np.moveaxis(np.indices(part.shape, np.int64), 0, -1)
    places = graph.node("Add", [graph.constant(grid), begin])
    graph.give_raw(operator.outputs[0], graph.node("ScatterND", [graph.raw(whole), places, graph.raw(part)]))


RULES = {"SCATTER_ND": scatter, "DYNAMIC_UPDATE_SLICE": update}
