"""Replace lists and maps at a model's outputs by plain tensors.

`ZipMap` pairs each probability with the name of its class: the probabilities themselves are the output then. A
sequence that is put together or split up at the end becomes one output for each of its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edge_infer_converters.passes.graphs import FreshNames, names_in, reads_of, sort_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The operator set of the nodes written here, where the model names none.
_OPSET = 13


def to_plain_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose outputs are tensors, as far as they can be: the model itself where nothing is to do.

    An output that was a map, or an optional tensor, keeps its name; a sequence `y` of n tensors becomes `y_0` ...
    `y_n-1`. What is left, such as a sequence that a loop makes, stays.

    Args:
        model: A valid model.
    """
    if all(value.type.WhichOneof("value") in ("tensor_type", None) for value in model.graph.output):
        return model
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    graph = plain.graph
    producers = {name: node for node in graph.node for name in node.output}
    types = _types(plain)
    outputs: list[onnx.ValueInfoProto] = []
    for value in graph.output:
        node = _without_identity(producers, value.name)
        if value.type.WhichOneof("value") == "tensor_type" or node is None:
            outputs.append(value)
        elif node.op_type in ("ZipMap", "Optional") and node.input and node.input[0]:
            outputs.append(_renamed(graph, node, node.input[0], value.name, types))
        elif node.op_type == "SequenceConstruct":
            outputs += [_renamed(graph, None, name, f"{value.name}_{i}", types) for i, name in enumerate(node.input)]
        elif node.op_type == "SplitToSequence" and (parts := _split(graph, node, value.name, types)):
            outputs += parts
        else:
            outputs.append(value)
    del graph.output[:]
    graph.output.extend(outputs)
    _drop_unread(graph)
    sort_nodes(graph)
    if not any(entry.domain in ("", "ai.onnx") for entry in plain.opset_import):
        plain.opset_import.add(domain="", version=_OPSET)  # a model of ai.onnx.ml alone names no other
    return plain


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {value.name: value.type for value in (*inferred.value_info, *inferred.output, *inferred.input)}
    for tensor in inferred.initializer:
        known[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return known


def _without_identity(producers: Mapping[str, onnx.NodeProto], name: str) -> onnx.NodeProto | None:
    node = producers.get(name)
    while node is not None and node.op_type == "Identity":
        node = producers.get(node.input[0])
    return node


def _renamed(
    graph: onnx.GraphProto, old: onnx.NodeProto | None, inner: str, name: str, types: Mapping[str, onnx.TypeProto]
) -> onnx.ValueInfoProto:
    """Give a value out under a name; the node that gave it out in another type is dropped, in place."""
    if old is not None:
        for node in [node for node in graph.node if name in node.output]:
            graph.node.remove(node)
    graph.node.append(helper.make_node("Identity", [inner], [name], name=f"{name}/plain"))
    kind = types.get(inner, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    return helper.make_value_info(name, kind)


def _split(
    graph: onnx.GraphProto, node: onnx.NodeProto, name: str, types: Mapping[str, onnx.TypeProto]
) -> list[onnx.ValueInfoProto]:
    """Write a split of known parts as `Split`, in place; nothing where the number of parts is not known."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    axis = attributes.get("axis", 0)
    kind = types.get(node.input[0])
    if kind is None or not kind.tensor_type.HasField("shape"):
        return []
    dims = kind.tensor_type.shape.dim
    axis %= len(dims)
    size = dims[axis].dim_value if dims[axis].HasField("dim_value") else 0
    sizes = _part_sizes(graph, node, size)
    if not sizes or (not attributes.get("keepdims", 1) and len(node.input) == 1):
        return []
    names = [f"{name}_{i}" for i in range(len(sizes))]
    stored = FreshNames(names_in(graph))(f"{name}/sizes")
    graph.initializer.append(helper.make_tensor(stored, onnx.TensorProto.INT64, [len(sizes)], sizes))
    graph.node.append(helper.make_node("Split", [node.input[0], stored], names, name=f"{name}/plain", axis=axis))
    values = []
    for part, length in zip(names, sizes, strict=True):
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]
        shape[axis] = length
        values.append(helper.make_tensor_value_info(part, kind.tensor_type.elem_type, shape))
    return values


def _part_sizes(graph: onnx.GraphProto, node: onnx.NodeProto, size: int) -> list[int]:
    if len(node.input) == 1:
        return [1] * size
    stored = next((tensor for tensor in graph.initializer if tensor.name == node.input[1]), None)
    if stored is None:
        return []
    lengths = onnx.numpy_helper.to_array(stored)
    if lengths.ndim:
        return [int(length) for length in lengths]
    step = int(lengths)
    return [min(step, size - start) for start in range(0, size, step)] if step > 0 else []


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Drop, in place, nodes that no output needs any more."""
    while True:
        read = {name for node in graph.node for name in reads_of(node)} | {value.name for value in graph.output}
        unread = [node for node in graph.node if not any(name in read for name in node.output)]
        if not unread:
            return
        for node in unread:
            graph.node.remove(node)
