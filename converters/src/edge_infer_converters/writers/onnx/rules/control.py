"""Control flow: the bodies of IF and WHILE become graphs inside a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import helper

from edge_infer_converters.writers.onnx.rules.reading import option, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_INT64, _BOOL = 7, 9


def branch(operator: Operator, graph: Graph) -> None:
    """One of two bodies, which read the values of the graph around them."""
    values = [graph.raw(one) for one in operator.inputs[1:] if one is not None]
    branches: dict[str, Any] = {}
    for side in ("then", "else"):
        inside = graph.inside()
        ends = inside.lower(option(operator, f"{side}SubgraphIndex"), values)
        branches[f"{side}_branch"] = _body(inside, side, [], ends, operator.outputs)
    condition = _single(graph, graph.raw(tensor(operator, 0)))
    _give(operator, graph, graph.node("If", [condition], count=len(operator.outputs), **branches))


def loop(operator: Operator, graph: Graph) -> None:
    """The condition is asked before the loop, and at the end of each round."""
    states = [tensor(operator, place) for place in range(len(operator.inputs))]
    condition, body = (option(operator, f"{one}SubgraphIndex") for one in ("cond", "body"))
    values = [graph.raw(one) for one in states]
    begins = _single(graph, graph.lower(condition, values)[0])
    inside = graph.inside()
    label = graph.label
    number, goes_on = (inside.reserve(f"{label}/{one}") for one in ("round", "goes_on"))
    names = [inside.reserve(f"{label}/{one.name}") for one in states]
    infos = [helper.make_tensor_value_info(number, _INT64, []), helper.make_tensor_value_info(goes_on, _BOOL, [])]
    infos += [helper.make_tensor_value_info(name, _type(one), None) for name, one in zip(names, states, strict=True)]
    ends = inside.lower(body, names)
    ends = [_single(inside, inside.lower(condition, ends)[0]), *ends]
    made = _body(inside, "body", infos, ends, [None, *states])
    _give(operator, graph, graph.node("Loop", ["", begins, *values], count=len(states), body=made))


def _single(graph: Graph, value: str) -> str:
    """Make a value of one element a scalar."""
    return str(graph.node("Reshape", [value, graph.integers()]))


def _body(
    inside: Graph, name: str, inputs: Sequence[onnx.ValueInfoProto], ends: Sequence[str], kinds: Sequence[Tensor | None]
) -> onnx.GraphProto:
    """Return a graph; each end is a node of its own in it."""
    outputs = [inside.node("Identity", [one]) for one in ends]
    infos = [
        helper.make_tensor_value_info(one, _BOOL if kind is None else _type(kind), None)
        for one, kind in zip(outputs, kinds, strict=True)
    ]
    return helper.make_graph(inside.nodes, name, inputs, infos)


def _type(tensor: Tensor) -> int:
    return int(helper.np_dtype_to_tensor_dtype(tensor.dtype))


def _give(operator: Operator, graph: Graph, found: str | list[str]) -> None:
    for output, value in zip(operator.outputs, [found] if isinstance(found, str) else found, strict=True):
        graph.give_raw(output, value)


RULES = {"IF": branch, "WHILE": loop}
