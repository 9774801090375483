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
from edge_infer_converters.passes.graphs import reads_of, subgraphs_of
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.writers.onnx.graph import Graph
from edge_infer_converters.writers.onnx.rules import RULES
from edge_infer_converters.writers.onnx.rules.signals import OF_COMPLEX
from edge_infer_converters.writers.tflite.graph import dimensions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edge_infer_converters.writers.tflite.graph import Graph as TFLiteGraph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

#: The operators that have a rule.
SUPPORTED = tuple(sorted(RULES))
_IR_VERSION = 10
#: Bodies inside bodies.
_DEEPEST = 16
_HINT = "keep it as TFLite (--format tflite), or convert the model that it was made of"


def to_onnx(source: TFLiteGraph, name: str, bodies: Sequence[TFLiteGraph] = ()) -> onnx.ModelProto:
    """Write a TFLite graph as an ONNX model with the same inputs and outputs.

    Variable tensors of an LSTM start at zero in each run, as TFLite's do in the first.

    Args:
        source: The graph.
        name: What to call it.
        bodies: All subgraphs of the file, the first of which is the graph: what control flow runs.

    Raises:
        UnsupportedOperator: Operators or forms of them have no rule; all of them are named.
        UnsupportedModel: It contradicts itself, or an input and an output have one name.
    """
    lowering = _Lowering(name, bodies)
    graph = Graph(lowering.body)
    for tensor in source.inputs:
        graph.accept(tensor)
    lowering.run(source.operators, graph)
    faults = [*lowering.faults]
    faults += [f"the complex numbers of `{one.name}`" for one in (*source.inputs, *source.outputs) if _is_complex(one)]
    if faults:
        raise UnsupportedOperator(f"ONNX is not written for {listed(faults)}", hint=_HINT, operators=faults)
    ends = _outputs(graph, source.inputs, source.outputs)
    made = helper.make_graph(
        _needed(graph.nodes, ends),
        name,
        [_info(tensor) for tensor in source.inputs],
        [_info(tensor) for tensor in source.outputs],
    )
    used = {one for node in made.node for one in reads_of(node)}
    made.initializer.extend(one for one in graph.constants if one.name in used)
    opsets = [helper.make_opsetid("", graph.opset)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="edge-infer")
    if any(node.op_type == "DequantizeLinear" for node in made.node):
        shorten_names(model)
    return model


class _Lowering:
    """The operators of a file, subgraph by subgraph.

    Args:
        name: What to call the file.
        bodies: Its subgraphs.

    Attributes:
        faults: The operators without a rule, and the forms of operators that a rule refuses, in order.
    """

    def __init__(self, name: str, bodies: Sequence[TFLiteGraph]) -> None:
        self.faults: dict[str, None] = {}
        self._name = name
        self._bodies = bodies
        self._depth = 0

    def run(self, operators: Sequence[Operator], graph: Graph) -> None:
        """Add the nodes of some operators."""
        for operator in operators:
            is_complex = any(one is not None and _is_complex(one) for one in (*operator.inputs, *operator.outputs))
            rule = (OF_COMPLEX if is_complex else RULES).get(operator.code)
            graph.label = operator.outputs[0].name if operator.outputs else operator.code
            if rule is None:
                self.faults[operator.code + " (complex numbers)" * (is_complex and operator.code in RULES)] = None
            elif not self.faults:  # what follows a missing operator lacks its value
                try:
                    rule(operator, graph)
                except UnsupportedModel as error:
                    self.faults[f"{operator.code} ({error.message})"] = None
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    raise UnsupportedModel(
                        f"`{self._name}` contradicts itself: {operator.code} cannot be read: {error}",
                        hint="fetch or convert it again",
                    ) from error

    def body(self, number: int, graph: Graph, values: Sequence[str]) -> list[str]:
        """Add the nodes of a subgraph that gets some values; return those that it gives."""
        if not 0 < number < len(self._bodies) or self._depth == _DEEPEST:
            raise UnsupportedModel(f"subgraph {number} of {len(self._bodies)}, {self._depth} deep")
        source = self._bodies[number]
        for tensor, value in zip(source.inputs, values, strict=True):
            graph.give_raw(tensor, value)
        self._depth += 1
        self.run(source.operators, graph)
        self._depth -= 1
        if self.faults:  # they are told together; no value is there
            return [""] * len(source.outputs)
        return [graph.raw(tensor) for tensor in source.outputs]


def _is_complex(tensor: Tensor) -> bool:
    return tensor.dtype.kind == "c"


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
    _rename_in(graph.nodes, old, new)


def _rename_in(nodes: Iterable[onnx.NodeProto], old: str, new: str) -> None:
    for node in nodes:
        for side in (node.input, node.output):
            for i, name in enumerate(side):
                if name == old:
                    side[i] = new
        for body in subgraphs_of(node):
            _rename_in(body.node, old, new)


def _needed(nodes: Sequence[onnx.NodeProto], ends: Sequence[str]) -> list[onnx.NodeProto]:
    """Leave out the nodes that lead to no output."""
    wanted, kept = set(ends), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= reads_of(node)
    return kept[::-1]


def _info(tensor: Tensor) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
    return helper.make_tensor_value_info(tensor.name, kind, dimensions(tensor.name, tensor.signature))
