"""From the operators of a TFLite graph to nodes of ONNX.

Each operator has one rule. What TFLite computes in integers becomes DequantizeLinear, the node in floats, and
QuantizeLinear, which engines fuse: sums are rounded to even there, by TFLite away from zero, so that a value may differ
by one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edge_infer.errors import UnsupportedModel, UnsupportedOperator, listed
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.writers.onnx.graph import Graph
from edge_infer_converters.writers.onnx.rules import RULES
from edge_infer_converters.writers.tflite.graph import dimensions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.tflite.graph import Graph as TFLiteGraph
    from edge_infer_converters.writers.tflite.graph import Tensor

#: The operators that have a rule.
SUPPORTED = tuple(sorted(RULES))
_IR_VERSION = 10
_HINT = "keep it as TFLite (--format tflite), or convert the model that it was made of"


def to_onnx(source: TFLiteGraph, name: str) -> onnx.ModelProto:
    """Write a TFLite graph as an ONNX model with the same inputs and outputs.

    Variable tensors of an LSTM start at zero in each run, as TFLite's do in the first.

    Args:
        source: The graph.
        name: What to call it.

    Raises:
        UnsupportedOperator: Operators or forms of them have no rule; all of them are named.
        UnsupportedModel: It contradicts itself, or an input and an output have one name.
    """
    graph = Graph()
    for tensor in source.inputs:
        graph.accept(tensor)
    faults: dict[str, None] = {}
    for operator in source.operators:
        rule = RULES.get(operator.code)
        graph.label = operator.outputs[0].name if operator.outputs else operator.code
        if rule is None:
            faults[operator.code] = None
        elif not faults:  # what follows a missing operator lacks its value
            try:
                rule(operator, graph)
            except UnsupportedModel as error:
                faults[f"{operator.code} ({error.message})"] = None
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise UnsupportedModel(
                    f"`{name}` contradicts itself: {operator.code} cannot be read: {error}",
                    hint="fetch or convert it again",
                ) from error
    if faults:
        raise UnsupportedOperator(f"ONNX is not written for {listed([*faults])}", hint=_HINT, operators=[*faults])
    ends = _outputs(graph, source.inputs, source.outputs)
    made = helper.make_graph(
        _needed(graph.nodes, ends),
        name,
        [_info(tensor) for tensor in source.inputs],
        [_info(tensor) for tensor in source.outputs],
    )
    used = {one for node in made.node for one in node.input}
    made.initializer.extend(one for one in graph.constants if one.name in used)
    opsets = [helper.make_opsetid("", graph.opset)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="edge-infer")
    if any(node.op_type == "DequantizeLinear" for node in made.node):
        shorten_names(model)
    return model


def _outputs(graph: Graph, inputs: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[str]:
    """Call each output by its own name; one that is also a constant or another output is copied.

    Raises:
        UnsupportedModel: An output has the name of an input that it is not.
    """
    values = [graph.raw(tensor) for tensor in tensors]
    given = {tensor.name for tensor in inputs}
    made = {one for node in graph.nodes for one in node.output}
    for place, tensor in enumerate(tensors):
        name, is_own = tensor.name, values[place] == tensor.name
        if name in given and not is_own:
            raise UnsupportedModel(f"an input and an output are both called `{name}`", hint=_HINT)
        if name in given or (is_own and name in made):
            continue
        inside = graph.reserve(f"{name}/inside")  # another node or a constant has the name
        _rename(graph, name, inside)
        values = [inside if value == name else value for value in values]
        made = {inside if one == name else one for one in made}
    for tensor, value in zip(tensors, values, strict=True):
        if value == tensor.name:
            continue
        if value in made and values.count(value) == 1:
            _rename(graph, value, tensor.name)
        else:
            graph.nodes.append(helper.make_node("Identity", [value], [tensor.name], name=f"{tensor.name}/output"))
    return [tensor.name for tensor in tensors]


def _rename(graph: Graph, old: str, new: str) -> None:
    for constant in graph.constants:
        if constant.name == old:
            constant.name = new
    for node in graph.nodes:
        for side in (node.input, node.output):
            for i, name in enumerate(side):
                if name == old:
                    side[i] = new


def _needed(nodes: Sequence[onnx.NodeProto], ends: Sequence[str]) -> list[onnx.NodeProto]:
    """Leave out the nodes that lead to no output."""
    wanted, kept = set(ends), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    return kept[::-1]


def _info(tensor: Tensor) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
    return helper.make_tensor_value_info(tensor.name, kind, dimensions(tensor.name, tensor.signature))
