"""Put the branch that an `If` takes in its place, where its condition is constant."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import FreshNames, names_in, subgraphs_of


def fold_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which each `If` of a known condition is its branch: the model itself where there is none.

    A condition is known that follows from stored values, and from the shapes that inference finds.
    """
    found, best = model, model
    while any(node.op_type == "If" for node in found.graph.node):
        found = fold_constants(_with_known_shapes(found))
        if not _place_branches(found.graph):
            break
        best = found
    return best if best is model else fold_constants(best)


def _with_known_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with the results of `Shape` nodes stored, where they are known."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):  # ValueError: a type that ONNX lacks
        return model
    graph = inferred.graph
    known = {}
    for value in (*graph.input, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            known[value.name] = [dim.dim_value for dim in dims]
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    outputs = {value.name for value in model.graph.output}
    for node in list(changed.graph.node):
        if node.op_type != "Shape" or node.input[0] not in known or node.output[0] in outputs:
            continue
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        shape = known[node.input[0]][ends.get("start", 0) : ends.get("end")]
        changed.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), node.output[0]))
        changed.graph.node.remove(node)
    return changed


def _place_branches(graph: onnx.GraphProto) -> bool:
    """Replace, in place, every `If` of a stored condition; tell whether there was one."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    fresh = FreshNames(names_in(graph))
    nodes: list[onnx.NodeProto] = []
    placed = False
    for node in graph.node:
        if node.op_type != "If" or node.input[0] not in stored:
            nodes.append(node)
            continue
        placed = True
        is_true = bool(numpy_helper.to_array(stored[node.input[0]]).item())
        wanted = "then_branch" if is_true else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        names = {name: fresh(name) for child in branch.node for name in child.output if name}
        names |= {tensor.name: fresh(tensor.name) for tensor in branch.initializer}
        _rename(branch, names)
        graph.initializer.extend(branch.initializer)
        nodes += branch.node
        for inner, outer in zip(branch.output, node.output, strict=True):
            if outer:
                nodes.append(helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer]))
    if placed:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    return placed


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename, in place, values of a graph; subgraphs read them by their new names."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        for sides in (node.input, node.output):
            for place, name in enumerate(sides):
                sides[place] = names.get(name, name)
        for subgraph in subgraphs_of(node):
            _rename(subgraph, names)
            for value in subgraph.output:
                value.name = names.get(value.name, value.name)
