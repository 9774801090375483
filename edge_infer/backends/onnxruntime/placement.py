"""The providers on which the nodes of an ONNX Runtime session run.

`InferenceSession.get_providers` lists what was registered, not what is used. Two better witnesses: the assignment that
a session records when it is made (onnxruntime >= 1.24), and the profile of a run, which names the provider of every
kernel that was executed, with the shapes of its outputs.
"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CPU = "CPUExecutionProvider"
# Work on shapes, which every provider for GPUs leaves on the CPU: the host needs the result to launch kernels. These
# operators can be nothing else, or are so where they follow a `Shape`.
_SHAPE_OPERATORS = {
    "Shape", "Size", "Constant", "ConstantOfShape", "Gather", "Concat", "Slice", "Squeeze", "Unsqueeze",
    "Cast", "Range", "Reshape", "Identity", "Add", "Sub", "Mul", "Div", "Mod", "Equal", "Where", "Min",
    "Max", "ReduceProd", "Expand",
}  # fmt: skip
# A shape has as many elements as a tensor has dimensions; this leaves room for a few shapes in one tensor.
_SHAPE_ELEMENTS = 64
_KERNEL = "_kernel_time"


class Node(NamedTuple):
    """A node and what ran it.

    Attributes:
        name: The node's name in the graph that was run, which fusion may have changed.
        operator: The operator's name.
        provider: ONNX Runtime's name of the execution provider.
        is_shape_work: Whether it only computes shapes; of an assignment this is a guess by the operator.
    """

    name: str
    operator: str
    provider: str
    is_shape_work: bool


def assigned_nodes(session: Any) -> list[Node] | None:
    """Return the nodes as the session has assigned them; None where this version does not record it.

    Args:
        session: An `onnxruntime.InferenceSession` made with `RECORD`.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    return [
        Node(node.name, node.op_type, subgraph.ep_name, node.op_type in _SHAPE_OPERATORS)
        for subgraph in session.get_provider_graph_assignment_info()
        for node in subgraph.get_nodes()
    ]


def executed_nodes(profile: str | bytes) -> list[Node]:
    """Read the nodes that ran from the text of a profile, each once.

    Args:
        profile: What `InferenceSession.end_profiling` has written: Chrome's trace events.
    """
    found: dict[str, Node] = {}
    for event in json.loads(profile):
        facts = event.get("args", {})
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL) and "provider" in facts:
            name = event["name"].removesuffix(_KERNEL)
            outputs = [dims for output in facts.get("output_type_shape", []) for dims in output.items()]
            found[name] = Node(name, facts["op_name"], facts["provider"], _is_shape_work(outputs))
    return list(found.values())


def _is_shape_work(outputs: Sequence[tuple[str, list[int]]]) -> bool:
    """Tell whether all outputs are a few whole numbers: element type and shape of each."""
    return bool(outputs) and all(
        kind in ("int64", "int32", "bool") and len(shape) <= 1 and prod(shape) <= _SHAPE_ELEMENTS
        for kind, shape in outputs
    )


def counted(nodes: Iterable[Node]) -> tuple[tuple[str, int], ...]:
    """Count the nodes of each provider, the most first."""
    return tuple(Counter(node.provider for node in nodes).most_common())


def strays(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that the CPU computes although another provider was asked for, shape work left out."""
    return [node for node in nodes if node.provider == _CPU and not node.is_shape_work]


def named(nodes: Sequence[Node], most: int = 5) -> str:
    """Write nodes for people: `Conv` node_1, `TopK` node_7 and 3 more."""
    words = [f"`{node.operator}` {node.name}".strip() for node in nodes[:most]]
    return ", ".join(words) + (f" and {len(nodes) - most} more" if len(nodes) > most else "")
