"""The graph of a model as `bisection` reads it: which node computes which value from which."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BackendUnavailable
from edge_infer.formats import tflite

if TYPE_CHECKING:
    import onnx


class Node(NamedTuple):
    """A node: its name (empty where the file has none), its operator, and the values that it reads and makes."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph(NamedTuple):
    """A model's main graph.

    Attributes:
        nodes: In the order in which they run.
        inputs: The names of the graph's inputs.
        stored: The names of what depends on no input; the empty name is one of them.
        no_tensors: The names of values that are sequences, maps or the like.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    stored: frozenset[str]
    no_tensors: frozenset[str] = frozenset()


def graph_of(model: bytes, format_: str) -> Graph:
    """Read a model's graph.

    Args:
        model: Its file.
        format_: `onnx` or `tflite`.

    Raises:
        BackendUnavailable: It is ONNX, and the package onnx is not installed.
        UnsupportedModel: It is not a whole TFLite file.
    """
    return _of_tflite(model) if format_ == "tflite" else _of_onnx(parsed(model))


def parsed(model: bytes) -> onnx.ModelProto:
    """Parse an ONNX model.

    Raises:
        BackendUnavailable: The package onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise BackendUnavailable(
            "Bisecting needs the package onnx, which is not installed", hint="pip install onnx"
        ) from error
    return onnx.load_model_from_string(model)


def inferred_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return what is known of the inner values' types."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    except (onnx.shape_inference.InferenceError, ValueError):  # ValueError: larger than protobuf can hold
        inferred = model.graph.value_info
    return {value.name: value for value in inferred}


def _of_onnx(model: onnx.ModelProto) -> Graph:
    stored = {tensor.name for tensor in model.graph.initializer} | {""}
    inputs = [value.name for value in model.graph.input if value.name not in stored]
    nodes = [Node(node.name, node.op_type, tuple(node.input), tuple(node.output)) for node in model.graph.node]
    for node, proto in zip(nodes, model.graph.node, strict=True):
        has_graph = any(attribute.HasField("g") or attribute.graphs for attribute in proto.attribute)
        if all(name in stored for name in node.inputs) and not has_graph:
            stored.update(node.outputs)
    types = inferred_types(model)
    others = {name for name, value in types.items() if value.type.WhichOneof("value") not in ("tensor_type", None)}
    return Graph(tuple(nodes), tuple(inputs), frozenset(stored), frozenset(others))


def _of_tflite(model: bytes) -> Graph:
    file = tflite.read(model)
    names = file.value_names()
    stored = {""} | {names[i] for i, tensor in enumerate(file.tensors) if tensor.data is not None}
    nodes = [
        Node("", one.code, *(tuple(names[i] if i >= 0 else "" for i in side) for side in (one.inputs, one.outputs)))
        for one in file.operators
    ]
    for node in nodes:
        if all(name in stored for name in node.inputs):
            stored.update(node.outputs)
    return Graph(tuple(nodes), tuple(file.inputs), frozenset(stored))
