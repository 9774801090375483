"""Let a model in half precision compute in float32: each weight is the float32 number that its half stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_stored_shapes, graphs_of, names_in, without_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLOAT, _HALVES = TensorProto.FLOAT, (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: The attributes of operators that name an element type.
_TYPES = ("to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type")
#: Operators that read the bits of a number.
_OF_BITS = ("BitCast",)


def widen(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy that computes in float32 what the model computes in float16 or bfloat16.

    Inputs and outputs keep their types: a `Cast` stands behind such an input and before such an output. Casts from
    float32 to float32 go. Values that a half rounds, or has no room for (from 65520 on), stay what they are.

    Args:
        model: A valid model.

    Returns:
        The copy, which an engine may still refuse; None where the bits of a half are read.
    """
    light, large = without_weights(model)
    wide = inliner.inline_local_functions(light) if light.functions else light
    graphs = list(graphs_of(wide.graph))
    if any(node.op_type in _OF_BITS for graph in graphs for node in graph.node):
        return None
    apart = {tensor.name: tensor for tensor in large}
    ends = {value.name: value.type.tensor_type.elem_type for value in (*wide.graph.input, *wide.graph.output)}
    for graph in graphs:
        for value in (*graph.input, *graph.output, *graph.value_info):
            _widen_type(value.type)
        for tensor in graph.initializer:
            _widen_tensor(tensor, apart.get(tensor.name, tensor) if graph is wide.graph else tensor)
        for sparse in graph.sparse_initializer:
            _widen_tensor(sparse.values, sparse.values)
        for node in graph.node:
            for attribute in node.attribute:
                _widen_attribute(attribute)
    _drop_casts(wide)
    _cast_ends(wide.graph, {name: type_ for name, type_ in ends.items() if type_ in _HALVES})
    return wide


def _widen_type(kind: onnx.TypeProto) -> None:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        tensor.elem_type = _FLOAT if tensor.elem_type in _HALVES else tensor.elem_type
    elif which in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, which).elem_type)


def _widen_tensor(target: onnx.TensorProto, tensor: onnx.TensorProto) -> None:
    """Give a tensor the values of another, or its own, in float32 where they are halves."""
    if tensor.data_type in _HALVES:
        name, values = tensor.name, numpy_helper.to_array(tensor).astype(np.float32)
        target.Clear()
        target.name, target.data_type, target.raw_data = name, _FLOAT, values.tobytes()
        target.dims.extend(values.shape)
    elif target is not tensor:
        target.CopyFrom(tensor)


def _widen_attribute(attribute: onnx.AttributeProto) -> None:
    if attribute.name in _TYPES and attribute.i in _HALVES:
        attribute.i = _FLOAT
    for tensor in (*attribute.tensors, *((attribute.t,) if attribute.HasField("t") else ())):
        _widen_tensor(tensor, tensor)
    if attribute.HasField("sparse_tensor"):
        _widen_tensor(attribute.sparse_tensor.values, attribute.sparse_tensor.values)
    if attribute.HasField("tp"):
        _widen_type(attribute.tp)


def _drop_casts(model: onnx.ModelProto) -> None:
    """Let, in place, what reads a float32 that is cast to float32 read that itself."""
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(without_weights(model)[0]).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*inferred.input, *inferred.value_info)}
    types |= {tensor.name: tensor.data_type for part in graphs_of(graph) for tensor in part.initializer}
    names: dict[str, str] = {}

    def resolved(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    for part in graphs_of(graph):
        made = {name for node in part.node for name in node.output}
        outputs = {value.name for value in part.output}
        for node in [node for node in part.node if _is_to_float(node) and types.get(node.input[0]) == _FLOAT]:
            given, output = resolved(node.input[0]), node.output[0]
            if output not in outputs:
                names[output] = given
            elif given in made - outputs:
                names[given] = output
            else:
                continue
            part.node.remove(node)
    _rename(graph, {name: resolved(name) for name in names})


def _is_to_float(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and any(one.name == "to" and one.i == _FLOAT for one in node.attribute)


def _cast_ends(graph: onnx.GraphProto, halves: Mapping[str, int]) -> None:
    """Give, in place, inputs and outputs the types that they had, with a Cast between them and the float32 inside."""
    inputs = [value for value in graph.input if value.name in halves]
    given = {value.name for value in inputs}
    outputs = [value for value in graph.output if value.name in halves]
    fresh = FreshNames(names_in(graph))
    inside = {name: fresh(f"{name}/float") for name in halves}
    _rename(graph, inside)
    for place, value in enumerate(inputs):
        node = helper.make_node("Cast", [value.name], [inside[value.name]], to=_FLOAT)
        graph.node.insert(place, node)
    for value in outputs:
        if value.name not in given:  # an input that is an output too is what it was
            node = helper.make_node("Cast", [inside[value.name]], [value.name], to=halves[value.name])
            graph.node.append(node)
    for value in (*inputs, *outputs):
        value.type.tensor_type.elem_type = halves[value.name]


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give values other names, in place, wherever they are but at the ends of the graph."""
    for part in graphs_of(graph):
        drop_stored_shapes(part, names)
        ends = () if part is graph else (*part.input, *part.output)
        for named in (*ends, *part.initializer):
            named.name = names.get(named.name, named.name)
        for node in part.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
