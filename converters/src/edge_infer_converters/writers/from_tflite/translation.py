"""Translate a TFLite graph operator by operator, naming at once all that has no rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edge_infer.errors import UnsupportedModel, UnsupportedOperator, listed
from edge_infer.formats import tflite
from edge_infer_converters.passes.own_zero_points import own_zero_points
from edge_infer_converters.writers.from_tflite.builder import Builder, Node, Unsupported
from edge_infer_converters.writers.from_tflite.rules import RULES
from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Graph, Tensor

#: What is written, and what has QuantizeLinear of int16; both engines read them.
OPSET, INT16_OPSET, IR = 20, 21, 9


def to_onnx(content: bytes, name: str) -> onnx.ModelProto:
    """Write a TFLite file as an ONNX model of the same inputs and outputs: names, types, shapes, order of axes.

    Args:
        content: The bytes of the file.
        name: What to call it.

    Returns:
        The model. Integers stay integers: an operator of them stands between DequantizeLinear and QuantizeLinear,
        which rounds halves to even, where TFLite's fixed-point arithmetic rounds them up: a value may be one step off.

    Raises:
        UnsupportedModel: The file is damaged, or has control flow, strings or sparse weights.
        UnsupportedOperator: Operators have no rule, or settings that their rule does not write: all of them are named.
    """
    file = tflite.read(content, name)
    missing = sorted({one.code for one in file.operators} - set(RULES))
    if missing:
        raise _refused(name, dict.fromkeys(missing, ""))
    graph = reading.read(content, name).graph
    builder = Builder()
    for tensor in (*graph.inputs, *graph.outputs):
        builder.reserve(tensor.name)
    for tensor in graph.inputs:
        builder.set_form(tensor, tensor.name)
    reasons: dict[str, str] = {}
    for operator in graph.operators:
        try:
            RULES[operator.code](Node(builder, operator))
        except Unsupported as error:
            reasons.setdefault(operator.code, str(error))
            for tensor in operator.outputs:  # what follows is tried too
                builder.set_form(tensor, tensor.name)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnsupportedModel(
                f"`{name}` contradicts itself: {operator.code} cannot be read: {error}",
                hint="fetch or convert it again",
            ) from error
    if reasons:
        raise _refused(name, reasons)
    return _model(graph, builder, name)


def _refused(name: str, reasons: dict[str, str]) -> UnsupportedOperator:
    said = [f"{code} with {reason}" if reason else code for code, reason in reasons.items()]
    count = "One operator" if len(said) == 1 else f"{len(said)} operators"
    return UnsupportedOperator(
        f"{count} of `{name}` cannot be written as ONNX: {listed(said)}",
        hint="leave --format out to keep it as TFLite, or convert the model that it was made of",
        operators=list(reasons),
    )


def _model(graph: Graph, builder: Builder, name: str) -> onnx.ModelProto:
    outputs = []
    for tensor in graph.outputs:
        builder.nodes.append(helper.make_node("Identity", [builder.stored(tensor)], [tensor.name]))
        outputs.append(_value(tensor))
    nodes = _without_detours(_needed(builder.nodes, {tensor.name for tensor in graph.outputs}), graph)
    read = {one for node in nodes for one in node.input}
    zeros = {node.input[2] for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    made = helper.make_graph(
        nodes,
        name.removesuffix(".tflite"),
        [_value(tensor) for tensor in graph.inputs],
        outputs,
        [tensor for key, tensor in builder.initializers.items() if key in read],
    )
    has_int16 = any(one.data_type == onnx.TensorProto.INT16 for one in made.initializer if one.name in zeros)
    opset = INT16_OPSET if has_int16 else OPSET
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR + has_int16)
    return own_zero_points(model)


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    names = ["batch", *(f"{tensor.name}_{axis}" for axis in range(1, tensor.rank))]
    dims = [dim if dim >= 0 else names[axis] for axis, dim in enumerate(tensor.signature)]
    return helper.make_tensor_value_info(tensor.name, helper.np_dtype_to_tensor_dtype(tensor.dtype), dims)


def _needed(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """Drop the nodes that lead to no output."""
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _without_detours(nodes: list[onnx.NodeProto], graph: Graph) -> list[onnx.NodeProto]:
    """Let the node that makes an output bear its name, where no other output is the same value."""
    ends = {tensor.name for tensor in (*graph.inputs, *graph.outputs)}
    made = {name for node in nodes for name in node.output}
    renamed: dict[str, str] = {}
    kept = []
    for node in nodes:
        is_end = node.op_type == "Identity" and node.output[0] in ends
        source = node.input[0] if node.input else ""
        if is_end and source in made and source not in ends and source not in renamed:
            renamed[source] = node.output[0]
        else:
            kept.append(node)
    for node in kept:
        for names in (node.input, node.output):
            names[:] = [renamed.get(one, one) for one in names]
    return kept
