"""Move the channels of images to the last axis at a model's inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edge_infer.errors import InputError, listed
from edge_infer_converters.passes.graphs import FreshNames, drop_stored_shapes, graphs_of, names_in, subgraphs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Operators whose first input has its channels on axis 1, and so has their first output.
_WINDOWS = frozenset(
    (
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "QLinearConv",
        "SpaceToDepth", "Upsample",
    )
)  # fmt: skip
#: Operators that leave the axes of what they read where they are.
_ELEMENTWISE = frozenset(
    (
        "Abs", "Add", "Cast", "Clip", "Concat", "Div", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
        "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pad",
        "Pow", "Relu", "Resize", "Round", "Selu", "Sigmoid", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Sub",
        "Sum", "Swish", "Tanh", "Where",
    )
)  # fmt: skip
_RANKS = (3, 4)


def to_channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose images are [batch, height, width, channels], and [batch, length, channels] in one dimension.

    An image is an input or output of rank 3 or 4 that a convolution, a pooling or another operator on channels reads
    or gives, operators on each element between them included. Names and all else stay. Each image is transposed where
    it enters and leaves; the TFLite writer cancels that against its own order.

    Raises:
        InputError: None of the inputs and outputs is an image.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    stored = {tensor.name for tensor in graph.initializer}
    found = _images(model)
    inputs = [value for value in graph.input if value.name in found and value.name not in stored]
    outputs = [value for value in graph.output if value.name in found]
    if not inputs and not outputs:
        ends = [value.name for value in (*graph.input, *graph.output) if value.name not in stored]
        raise InputError(
            f"--layout nhwc changes nothing: no convolution or pooling reads or gives {listed(ends)} directly",
            hint="leave --layout out",
        )
    fresh = FreshNames(names_in(graph))
    nodes = list(graph.node)
    del graph.node[:]
    for value in inputs:
        rank = found[value.name]
        order = [0, rank - 1, *range(1, rank - 1)]
        inner = _rename(nodes, value.name, fresh(f"{value.name}/nchw"))
        graph.node.append(_turned(value.name, inner, order))
    ends = []
    for value in outputs:
        rank = found[value.name]
        inner = _rename(nodes, value.name, fresh(f"{value.name}/nchw"))
        ends.append(_turned(inner, value.name, [0, *range(2, rank), 1]))
    graph.node.extend([*nodes, *ends])
    for value in (*inputs, *outputs):
        _turn(value)
    drop_stored_shapes(graph)
    return changed


def _images(model: onnx.ModelProto) -> dict[str, int]:
    """Return the rank of each value with its channels on axis 1: of operators on channels, and what is joined to it."""
    ranks = _ranks(model)
    stored = {tensor.name for tensor in model.graph.initializer}
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    marked: list[str] = []
    for node in model.graph.node:
        ends = [*node.input[:1], *node.output[:1]]
        if node.op_type in _WINDOWS:
            marked += [name for name in ends if ranks.get(name) in _RANKS]
        elif node.op_type in _ELEMENTWISE:
            rank = ranks.get(node.output[0])
            joined = [
                name
                for name in (*node.input, *node.output)
                if rank in _RANKS and ranks.get(name) == rank and name not in stored
            ]
            for name in joined[1:]:
                parent[root(name)] = root(joined[0])
    roots = {root(name) for name in marked}
    return {name: rank for name, rank in ranks.items() if root(name) in roots}


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    """Return the number of axes of each value of which it is known."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, ValueError):  # ValueError: a type that ONNX lacks
        graph = model.graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    return ranks


def _rename(nodes: Sequence[onnx.NodeProto], name: str, inner: str) -> str:
    """Call a value otherwise wherever nodes and the graphs inside them read or give it."""
    for node in nodes:
        _rename_in(node, name, inner)
        for graph in subgraphs_of(node):
            for part in graphs_of(graph):
                for child in part.node:
                    _rename_in(child, name, inner)
                for value in part.output:
                    value.name = inner if value.name == name else value.name
    return inner


def _rename_in(node: onnx.NodeProto, name: str, new: str) -> None:
    for names in (node.input, node.output):
        kept = [new if one == name else one for one in names]
        del names[:]
        names.extend(kept)


def _turned(source: str, target: str, order: Iterable[int]) -> onnx.NodeProto:
    return helper.make_node("Transpose", [source], [target], name=f"{target}/layout", perm=list(order))


def _turn(value: onnx.ValueInfoProto) -> None:
    """Move the channels of a declared shape to its end."""
    shape = value.type.tensor_type.shape
    dims = list(shape.dim)
    if not dims:
        return  # none is declared
    turned = onnx.TensorShapeProto()
    turned.dim.extend([dims[0], *dims[2:], dims[1]])
    shape.CopyFrom(turned)
