"""What an operator's function is given: a node, its attributes, and the graphs in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.formats.onnx_model import Node

#: A numpy array: of which type and rank is known when a model runs, and numpy's stubs ask for both.
Array: TypeAlias = Any
#: A function of a call and its inputs: an array or a list (a sequence) comes out, or a tuple of several outputs.
Operator: TypeAlias = "Callable[..., Any]"


class Call:
    """One node, as its operator's function sees it.

    Attributes:
        node: The node.
        attributes: Its attributes as plain values: numbers, texts, arrays, lists of them; graphs are to be `run`.
        opset: The version of the operator's domain that the model imports.
        outputs: How many outputs the node has; one that is not wanted has an empty name, and counts.
    """

    __slots__ = ("attributes", "graphs", "node", "opset", "outputs", "scope")

    def __init__(self, node: Node, attributes: dict[str, Any], graphs: dict[str, Any], opset: int) -> None:
        self.node = node
        self.attributes = attributes
        self.graphs = graphs
        self.opset = opset
        self.outputs = len(node.outputs)
        self.scope: dict[str, Any] = {}

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the node has a graph of this name."""
        return name in self.graphs

    def run(self, name: str, values: Sequence[Any]) -> list[Any]:
        """Run a graph of the node on inputs; it sees the values of the graphs around it."""
        return self.graphs[name].run_on(values, self.scope)  # type: ignore[no-any-return]

    def within(self, scope: dict[str, Any]) -> Call:
        """Return the same call with the values that its graphs see: a node runs in several threads at once."""
        made = Call(self.node, self.attributes, self.graphs, self.opset)
        made.scope = scope
        return made
