"""`tensor.graph`: one tensor through a small ONNX model of the bundle, for what no other step says."""

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
    """Return what runs the graph: it has one input and one output, and the steps before it make that input.

    The file lies in the bundle. A tensor without the first dimension of the graph's input gets it for the run. Engines
    differ in the last bits of what they compute, so vectors are compared by values.

    Raises:
        ManifestError: The graph has several inputs or outputs, or cannot be loaded.
    """
    return _Graph(Graph(place, parameters["file"]), parameters["file"])


class _Graph:
    """The step, with what the steps before it have to make."""

    def __init__(self, graph: Graph, file: str) -> None:
        names = [spec.name for spec in graph.inputs], [spec.name for spec in graph.outputs]
        if (len(names[0]), len(names[1])) != (1, 1):
            raise ManifestError(
                f"pipeline: `tensor.graph` runs graphs of one input and one output; `{file}` has the inputs "
                f"{listed(names[0])} and the outputs {listed(names[1])}",
                hint="post.graph takes several",
                field=file,
            )
        self.takes = graph.inputs[0]
        self._graph, self._output = graph, names[1][0]
        self.close = graph.close

    def __call__(self, tensor: Tensor, item: Item) -> Tensor:  # noqa: ARG002
        return self._graph.run({self.takes.name: tensor})[self._output]
