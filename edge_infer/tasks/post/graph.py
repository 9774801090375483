"""`post.graph`: the model's outputs through a small ONNX model of the bundle, for what no other step says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError, listed
from edge_infer.tasks.graph import Graph
from edge_infer.tasks.parameters import Parameter

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "file": Parameter("text"),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return what runs the graph: its inputs are outputs of the model, by name, and its outputs are read after it.

    Outputs of the model that the graph does not take stay as they are; one of its own of the same name replaces one.

    Raises:
        ManifestError: The graph takes what the model does not give, or cannot be loaded.
    """
    graph = Graph(place, parameters["file"])
    missing = [spec.name for spec in graph.inputs if spec.name not in place.outputs]
    if missing:
        raise ManifestError(
            f"pipeline: the graph `{parameters['file']}` takes {listed(missing)}, and the model gives "
            f"{listed(list(place.outputs))}",
            hint="name the graph's inputs as the model's outputs",
            field=missing[0],
        )
    return _Graph(graph, place)


class _Graph:
    """The step, with the outputs that the steps after it read."""

    def __init__(self, graph: Graph, place: Place) -> None:
        taken = {spec.name for spec in graph.inputs}
        kept = {name: spec for name, spec in place.outputs.items() if name not in taken}
        self.gives = [*(kept | {spec.name: spec for spec in graph.outputs}).values()]
        self._graph, self._kept = graph, kept
        self.close = graph.close

    def __call__(self, outputs: dict[str, Tensor], item: Item) -> dict[str, Tensor]:  # noqa: ARG002
        made = self._graph.run(outputs)
        return {name: tensor for name, tensor in outputs.items() if name in self._kept} | made
